"""`slurmopt tend`: brings back the runs and sweeps that should go on and that nothing else brings back.

`--json` prints a list of objects, one for each thing that was done (with `--dry-run`: would be done):

    name id folder
    did       submitted; noted (an earlier tend or launch had submitted it, and its journal did not know); not noted
              (submitted, but its journal cannot be written: see `error`); ended (it stays so); cancelled (by scancel,
              and stays so); failed (see `error`)
    job       the new job's id, with `submitted` and `noted`
    attempt cause reason      of the end that it comes back after, or that was found
    error     why it could not be brought back
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from slurmopt import command_output
from slurmopt.errors import InputError, SlurmError, SlurmoptError, one_line, with_place
from slurmopt.report.in_own_process import write_report
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder, point_number
from slurmopt.runs import options
from slurmopt.runs.all_runs import all_runs, all_sweeps
from slurmopt.runs.find import Selection, select
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.recovery.action import Action, left_alone
from slurmopt.runs.recovery.tend import tend
from slurmopt.sweeps.tend import started_parts, tend_sweeps

_INTERVAL = "60s"


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    if args.from_job is not None:
        from slurmopt.runs.recovery.from_job import submit_from_job

        return submit_from_job(args.from_job, args.runs[0] if args.runs else None)
    interval = _seconds(args.watch) if args.watch is not None else None
    if interval is not None:
        return _watch(args, interval)
    actions: list[Action] = []
    try:
        for action in _actions(args):
            actions.append(action)
            if action.is_problem or not args.json:
                _print(action, args.dry_run)
            _write_report(action, args.dry_run)
    except (SlurmoptError, OSError) as error:
        command_output.fail(one_line(with_place(error)), type(error).__name__)
        return getattr(error, "exit_status", 1)
    finally:  # after Ctrl-C too, what was done is printed
        if args.json:
            command_output.print_json([asdict(action) for action in actions])
    _print_left_alone(args, {action.folder for action in actions})
    return 1 if any(action.is_problem for action in actions) else 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt tend`."""
    parser = options.parser("tend", "Restart the runs that should continue and that Slurm does not restart.")
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help="default: all runs; " + options.RUN_HELP.partition(";")[0]
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be done")
    output = parser.add_mutually_exclusive_group()
    options.add_json(output)
    output.add_argument(
        "--watch",
        nargs="?",
        const=_INTERVAL,
        metavar="EVERY",
        help=f"repeat at this interval until interrupted (default: {_INTERVAL})",
    )
    # Called by the batch shell when Slurm will not bring its job back: RUN is the run's folder, JOB that job.
    parser.add_argument("--from-job", metavar="JOB", help=argparse.SUPPRESS)
    return parser


def _seconds(text: str) -> int:
    from slurmopt.units import seconds

    try:
        return seconds(text)
    except ValueError as error:
        raise InputError(f"tend: --watch: {error}; name runs before it") from error


def _actions(args: argparse.Namespace) -> Iterator[Action]:
    """Tends the backlog of all sweeps, then the named runs and parts of sweeps, else all. A sweep that cannot be read
    does not stop the others."""
    yield from tend_sweeps(args.folder, args.dry_run)
    runs: list[RunFolder] = []
    for item in _selected(args):
        try:
            runs += _runs_of(item)
        except (SlurmoptError, OSError) as error:
            sweep = item.sweep if isinstance(item, Selection) else SweepFolder(item.path)
            if args.runs or owner_of(sweep.run) is None:  # others' sweeps are tended by their owners
                yield Action(sweep.name, sweep.id, str(sweep.path), "failed", error=with_place(error))
    yield from tend(runs, args.dry_run)


def _selected(args: argparse.Namespace) -> list[RunFolder | Selection]:
    if args.runs:
        return [select(name, args.folder) for name in args.runs]
    return [*all_runs(args.folder), *map(Selection, all_sweeps(args.folder))]


def _runs_of(item: RunFolder | Selection) -> list[RunFolder]:
    if isinstance(item, RunFolder):
        return [item]
    points = item.points
    return [run for run in started_parts(item.sweep) if points is None or (point_number(run) or 0) in points]


def _print(action: Action, dry_run: bool) -> None:
    if action.is_problem:
        command_output.fail(action.line(dry_run), SlurmoptError.__name__)
    else:
        print(action.line(dry_run), flush=True)


def _write_report(action: Action, dry_run: bool) -> None:
    """Of a run that stays as it is, whose batch shell ended without a word."""
    run = RunFolder(Path(action.folder))
    if not dry_run and action.did in ("ended", "cancelled") and run.attempts() and not run.in_sweep:
        write_report(run)


def _print_left_alone(args: argparse.Namespace, folders: set[str]) -> None:
    """Says of each run or sweep that was named, and that is not among `folders`, why nothing was done."""
    for line in left_alone(_selected(args) if args.runs else [], folders):
        command_output.warn(f"{line}")


def _watch(args: argparse.Namespace, interval: int) -> int:
    """Tends every `interval` seconds; a line of the previous round is not printed again."""
    previous: list[str] | None = None
    while True:
        lines, folders = [], set()
        try:
            for action in _actions(args):
                folders.add(action.folder)
                lines.append(action.line(args.dry_run))
                if lines[-1] not in (previous or []):
                    _print(action, args.dry_run)
                _write_report(action, args.dry_run)
            if previous is None:
                _print_left_alone(args, folders)
        except (SlurmoptError, OSError) as error:
            if previous is None and not isinstance(error, SlurmError):  # an argument names nothing that can be tended
                raise
            lines.append(with_place(error))
            if lines[-1] not in (previous or []):
                command_output.warn(f"{one_line(with_place(error))}")
        previous = lines
        time.sleep(interval)
