"""`slurmopt status`: how runs are.

`--json` prints a list of objects, one a run, always with these keys (null where there is nothing to say):

    name id folder backend
    owner              the other user whom it belongs to; null for one's own
    state              see `slurmopt.runs.state`
    detail             a line for people: why it waits, why it failed
    estimated_start    of a waiting run, as Slurm expects it
    job jobs           the latest job, and all of them
    attempt attempts   the latest attempt's number, and how many there were
    nodes
    created submitted started ended heartbeat     times in seconds since the epoch; `started` is the latest attempt's
    elapsed            seconds of the latest attempt
    step total_steps steps_per_second eta_seconds metrics      of the lowest rank that has a heartbeat
    outcome exit_code rank error                  of the verdict that ended the run
    cause next reason      of the latest attempt's end: why, who brings the run back (requeue, slurm, submit), why so
    budgets                a list of what is used: cause, used (how often the run came back after it), limit
    checkpoints            tier (scratch, shared, s3) -> the newest durable one there: step, time, checkpoint
    checkpoint_failures    of a tier since its last success: tier, count; step, time and reason of the latest
    checkpoints_damaged    found broken and set aside: tier, checkpoint, time, reason
    restored               where the training went on from last: step, tier, checkpoint, time

With `--all` the last four and `budgets` are null: journals are not searched for them.
Times are numbers; a metric that is no finite number is null.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

from slurmopt.folder.held import holding
from slurmopt.folder.layout import RunFolder
from slurmopt.runs import options
from slurmopt.runs.find import all_runs, created, find
from slurmopt.runs.gather import Status, as_dict, gather
from slurmopt.runs.swapped import MOST, refuse_swapped, remarks
from slurmopt.runs.table import terminal_width
from slurmopt.runs.view import page, rows

_REDRAW = 1.0
_HOME_AND_CLEAR = "\x1b[H\x1b[J"


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    given = parser().parse_args(argv)
    return show(given, _folders(given))


def show(given: argparse.Namespace, folders: list[RunFolder]) -> int:
    """Shows these runs in the way that was asked for."""
    if given.watch:
        return _watch(folders)
    statuses, problem = gather(folders, details=not given.all)
    warn(problem)
    if given.json:
        print(json.dumps([as_dict(status, details=not given.all) for status in statuses], allow_nan=False))
    else:
        print(_text(statuses))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt status`."""
    made = options.parser("status", "How runs are: state, progress, why one waits or failed.")
    made.add_argument("runs", nargs="*", metavar="RUN", help=options.RUN_HELP)
    made.add_argument("--all", action="store_true", help="all runs, newest first")
    how = made.add_mutually_exclusive_group()
    options.add_json(how)
    how.add_argument("--watch", action="store_true", help="redraw until all of them have ended")
    return made


def _folders(given: argparse.Namespace) -> list[RunFolder]:
    if given.all and not given.runs:
        return sorted(all_runs(given.folder), key=created, reverse=True)
    return [find(word, given.folder) for word in given.runs or [None]]


def _text(statuses: list[Status]) -> str:
    return page(statuses[0]) if len(statuses) == 1 else rows(statuses, terminal_width())


def warn(problem: str | None) -> None:
    """Says that Slurm was not asked, and why."""
    if problem:
        print(f"slurmopt: Slurm was not asked, so this is what journals and heartbeats say: {problem}", file=sys.stderr)


def _watch(folders: list[RunFolder]) -> int:
    def look() -> tuple[str, list[str], bool]:
        statuses, problem = gather(folders, details=True)
        jobs = [(status.folder, [status.journal.job]) for status in statuses]
        if len(jobs) == 1:
            refuse_swapped(*jobs[0])
        told = remarks(jobs)
        text = _text(statuses) + (f"\n\nSlurm was not asked: {problem}" if problem else "") + told
        alive = any(status.alive or status.state == "unknown" for status in statuses)
        return text, [*(status.state for status in statuses), told], alive

    with holding([run.top for run in folders[:MOST]]):
        return redraw(look)


def redraw(look: Callable[[], tuple[str, list[str], bool]]) -> int:
    """On a terminal redraws in place; elsewhere prints again what has changed. `look` gives the text, what a change is
    told by, and whether it can change any more."""
    shown = None
    while True:
        text, states, alive = look()
        if sys.stdout.isatty():
            print(f"{_HOME_AND_CLEAR}{text}", flush=True)
        elif states != shown:
            print(text, flush=True)
            shown = states
        if not alive:
            return 0
        time.sleep(_REDRAW)
