"""What the commands of `slurmopt tune` share: options, the launch of the search, and an earlier one."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Callable, Mapping
from typing import Any

from slurmopt.config.sweep import BATCH_SIZE
from slurmopt.errors import InputError, RunError, one_line
from slurmopt.launching.override_words import merged, plus_and_key
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs import options
from slurmopt.runs.find import Selection, select
from slurmopt.runs.recovery.changed_config import launch_overrides
from slurmopt.sweeps.results import tuned

_ONCE = ["restart.budgets.hang=0"]
"""A trial that hangs is not made again: it would take as long, on all nodes."""
_OF_SEARCH = ("sweep.", "launch.")
"""Groups that are another's for the launch after the search."""
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


def launched(args: argparse.Namespace, method: str, axes: Callable[[Mapping[str, Any]], list[str]]) -> SweepFolder:
    """The search, once it has ended. `axes` makes the overrides with the values out of the config. Raises
    KeyboardInterrupt if the person did not wait for the end."""
    from slurmopt.launching import execute, run_plan, sweep_plan

    with contextlib.redirect_stdout(sys.stderr):  # standard output is for the answer
        words = [*args.overrides, *(["launch.backend=local"] if args.local else [])]
        plan = run_plan.plan(words, args.config_dir)
        if plan.job.settings.launch.dry_run:
            raise InputError("tune: launch.dry_run has no trials to answer with; valid: leave it out")
        words = [*merged([*_ONCE, *words], axes(plan.stored)), f"sweep.search={method}"]
        watches = sys.stderr.isatty()  # elsewhere the view would be printed again with each change
        words += [f"sweep.trials={_TRIALS}", f"sweep.steps={args.steps}", f"launch.wait={str(watches).lower()}"]
        planned = sweep_plan.plan_sweep(words, args.config_dir)
        status = execute.launch(planned)
        if not watches and status == 0:
            status = _wait(planned.sweep, "batch" if method == BATCH_SIZE else "loader")
    if status == 130:
        raise KeyboardInterrupt  # for --json
    return planned.sweep


def _wait(sweep: SweepFolder, kind: str) -> int:
    """Until the search has ended; 130 for Ctrl-C."""
    from slurmopt.sweeps.status.waiting import Waiting

    print(f"slurmopt: waits for the trials; slurmopt status {sweep.name}/{sweep.id} shows them", file=sys.stderr)
    try:
        Waiting([Selection(sweep)]).wait(None, any_of_them=False)
    except KeyboardInterrupt:
        label = f"{sweep.name}/{sweep.id}"
        print(
            f"\nslurmopt: the search goes on; its answer: slurmopt tune {kind} --read {label}; to end it: "
            f"slurmopt cancel {label}",
            file=sys.stderr,
        )
        return 130
    return 0


def earlier(name: str, what: str) -> SweepFolder:
    """The sweep of that name; RunError says that it is not `what`."""
    selection = select(name, options.default_folder())
    if not isinstance(selection, Selection):
        raise RunError(f"{one_line(name)} is a run, not {what}")
    return selection.sweep


def next_launch(sweep: SweepFolder, overrides: list[str]) -> str:
    """The line of the launch that follows the search."""
    typed = launch_overrides(sweep.run)
    if not typed:
        return f"next      launch the experiment with {one_line(shlex.join(overrides))}"
    words = [word for word in typed if not plus_and_key(word)[1].startswith(_OF_SEARCH) and word not in _ONCE]
    return f"next      {one_line(shlex.join(['slurmopt', 'launch', *merged(words, overrides)]))}"


def unanswered(sweep: SweepFolder, state: str) -> str | None:
    """Why the search has no answer yet; None where it has ended."""
    label = f"{sweep.name}/{sweep.id}"
    if state == tuned.RUNNING:
        return f"{label} has not ended: slurmopt status {label} --watch shows it, slurmopt wait {label} waits for it"
    if state == tuned.STOPPED:
        return f"{label} was ended before it had an answer; to go on: slurmopt retry {label}"
    return None
