"""`slurmopt cancel`: stops a run, a sweep or points of it, and checks that they have stopped.

`--json` prints one object. Of a run: `name`, `id`, `folder`, `job`, `state` (as `slurmopt status` has it) and `gone` (a
bool). Of a sweep or points of one: `name`, `id`, `folder`, `points` (those that were told to stop, "3-9"), `jobs`
(array jobs and tasks as scancel got them), `states` (of these points now: state -> how many) and `gone` (a bool).
"""

from __future__ import annotations

import argparse

from slurmopt import command_output
from slurmopt.report.in_own_process import write_missing_report
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import cancel as runs_cancel
from slurmopt.runs import options
from slurmopt.runs.find import select
from slurmopt.runs.status.query import Status
from slurmopt.sweeps import cancel as sweeps_cancel
from slurmopt.sweeps.cancel import Cancelled
from slurmopt.sweeps.status.view import short, state_counts


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    selected = select(args.run, args.folder)
    if isinstance(selected, RunFolder):
        status = runs_cancel.cancel(selected)
        _print(args.json, _run_dict(status), _run_line(status))
        write_missing_report(status)
    else:
        cancelled = sweeps_cancel.cancel(selected)
        _print(args.json, _sweep_dict(cancelled), _sweep_line(cancelled))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt cancel`."""
    parser = options.parser("cancel", "Cancel a run: its ranks are asked to stop, and killed if they do not.")
    options.add_run(parser)
    options.add_json(parser)
    return parser


def _print(as_json: bool, answer: dict[str, object], line: str) -> None:
    if as_json:
        command_output.print_json(answer)
    else:
        print(line, flush=True)


def _run_line(status: Status) -> str:
    if _goes_on(status):
        return (
            f"{status.label} (job {status.journal.job}) was asked to stop and is still {status.state}; "
            f"to see it end: slurmopt status {status.label} --watch"
        )
    if status.state != "cancelled":
        return f"{status.label} had ended before: {status.state}"
    return f"{status.label} (job {status.journal.job}) is cancelled"


def _run_dict(status: Status) -> dict[str, object]:
    folder = status.folder
    return {
        "name": folder.name,
        "id": folder.id,
        "folder": str(folder.path),
        "job": status.journal.job,
        "state": status.state,
        "gone": not _goes_on(status),
    }


def _goes_on(status: Status) -> bool:
    return status.alive or status.state == "unknown"


def _sweep_line(cancelled: Cancelled) -> str:
    states, points = cancelled.states, cancelled.points
    counts = states.counts(points)
    label = states.label if len(points) == states.count else f"{states.label}/{short(points)}"
    if cancelled.alive:
        return (
            f"{label}: {cancelled.alive:,} of {len(points):,} told to stop have not ended yet: {state_counts(counts)}; "
            f"what runs has half a minute; to see it end: slurmopt status {states.label} --watch"
        )
    if set(counts) == {"cancelled"}:
        subject, them = ("the point is", "it") if len(points) == 1 else (f"{len(points):,} points are", "them")
        to_retry = states.label if "…" in label else label
        return f"{label}: {subject} cancelled; slurmopt retry {to_retry} goes on with {them}"
    return f"{label}: {state_counts(counts)}"


def _sweep_dict(cancelled: Cancelled) -> dict[str, object]:
    sweep = cancelled.states.sweep
    return {
        "name": sweep.name,
        "id": sweep.id,
        "folder": str(sweep.path),
        "points": str(cancelled.points),
        "jobs": cancelled.jobs,
        "states": cancelled.states.counts(cancelled.points),
        "gone": not cancelled.alive,
    }
