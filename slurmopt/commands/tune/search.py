"""What the commands of `slurmopt tune` share: the launch of the search, and an earlier one."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from slurmopt.errors import RunError, one_line
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs import options
from slurmopt.runs.find import Selection, select

TRIALS = 16
"""The most that a search makes."""


def launched(
    words: list[str], config_dir: str | None, axis: Callable[[Mapping[str, Any]], str], method: str, steps: int
) -> SweepFolder | None:
    """The search, once it has ended; None if the person did not wait for that. `axis` makes the override with the
    values out of the config."""
    from slurmopt.launching import execute, run_plan, sweep_plan

    with contextlib.redirect_stdout(sys.stderr):  # standard output is for the answer
        words = [*words, axis(run_plan.plan(words, config_dir).stored), f"sweep.search={method}"]
        words += [f"sweep.trials={TRIALS}", f"sweep.steps={steps}", "launch.wait=true"]
        planned = sweep_plan.plan_sweep(words, config_dir)
        status = execute.launch(planned)
    return None if status == 130 else planned.sweep


def earlier(name: str, what: str) -> SweepFolder:
    """The sweep of that name; RunError says that it is not `what`."""
    selection = select(name, options.default_folder())
    if not isinstance(selection, Selection):
        raise RunError(f"{one_line(name)} is a run, not {what}")
    return selection.sweep


def value_of(config: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key; None where it is not there."""
    value: Any = config
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
