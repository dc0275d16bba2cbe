"""What the commands of `slurmopt tune` share: options, the launch of the search, and an earlier one."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from slurmopt.errors import InputError, RunError, one_line
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs import options
from slurmopt.runs.find import Selection, select

_TRIALS = 16
"""The most that a search makes."""


def add_options(parser: argparse.ArgumentParser, steps: int) -> None:
    """Adds the overrides and the options that both commands have; `steps` is the default for a trial."""
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as for slurmopt launch")
    parser.add_argument("--steps", type=int, default=steps, metavar="N", help=f"steps of each trial (default: {steps})")
    parser.add_argument("--local", action="store_true", help="run on this machine, without Slurm")
    parser.add_argument("--config-dir", metavar="DIR", help="the folder of your configs (default: conf)")
    parser.add_argument("--read", metavar="SWEEP", help="launch nothing: show an earlier search")
    options.add_json(parser)


def check(args: argparse.Namespace, command: str, least_steps: int) -> None:
    """Raises InputError for options of `add_options` that do not go together."""
    if args.read is not None and args.overrides:
        raise InputError(f"{command}: {args.overrides[0]}: --read launches nothing")
    if args.read is None and not args.overrides:
        raise InputError(f"{command}: no experiment; valid: slurmopt {command} +experiment=NAME")
    if args.steps < least_steps:
        raise InputError(f"{command}: --steps {args.steps} is not valid; valid: {least_steps} or more")


def launched(args: argparse.Namespace, method: str, axis: Callable[[Mapping[str, Any]], str]) -> SweepFolder | None:
    """The search, once it has ended; None if the person did not wait for that. `axis` makes the override with the
    values out of the config."""
    from slurmopt.launching import execute, run_plan, sweep_plan

    with contextlib.redirect_stdout(sys.stderr):  # standard output is for the answer
        words = [*args.overrides, *(["launch.backend=local"] if args.local else [])]
        words += [axis(run_plan.plan(words, args.config_dir).stored), f"sweep.search={method}"]
        words += [f"sweep.trials={_TRIALS}", f"sweep.steps={args.steps}", "launch.wait=true"]
        planned = sweep_plan.plan_sweep(words, args.config_dir)
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
