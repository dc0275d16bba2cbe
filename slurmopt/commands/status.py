"""`slurmopt status`: how runs, sweeps and points are.

`--json` prints a list of objects. A run, and one point of a sweep, always has these keys (null where there is
nothing to say):

    name id folder backend
    owner              the other user whom it belongs to; null for one's own
    state              see `slurmopt.runs.status.state`
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

A sweep, and several points of one, has these:

    name id folder owner
    sweep              true
    state              while a point goes on running or pending; else the worst of its points' ends
    points             how many there are
    selected           which of them are meant: "0-999"; `states` and `failures` are theirs
    states             state -> how many points: see `slurmopt.runs.status.state`
    ended              how many have ended
    created            seconds since the epoch
    points_per_minute eta_seconds     by the latest ends; null where nothing tells
    jobs               a list: job, points, per_task, packed
    failures           a list, the largest first: cause, error (that of `example`), count, points, example
    each               of several points: a list of number, state, detail, attempt, started, ended, seconds; else null
"""

from __future__ import annotations

import argparse
import json

from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.open_folders import holding
from slurmopt.runs import options
from slurmopt.runs.find import Selection, all_runs, all_sweeps, created, pick
from slurmopt.runs.replaced_folders import MOST
from slurmopt.runs.status.show import show, warn
from slurmopt.runs.status.watch import redraw
from slurmopt.sweeps.status.overview import drawn, look


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    given = parser().parse_args(argv)
    found = _picked(given)
    runs = [one for one in found if isinstance(one, RunFolder)]
    if len(runs) == len(found):
        return show(given, runs)
    if given.watch:
        with holding([_top(one).path for one in found[:MOST]]):
            return redraw(lambda: drawn(found))
    seen = look(found, details=not given.all)
    warn(seen.problem)
    print(json.dumps(seen.as_list(), allow_nan=False) if given.json else seen.text())
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


def _picked(given: argparse.Namespace) -> list[RunFolder | Selection]:
    if not given.all or given.runs:
        return [pick(word, given.folder) for word in given.runs or [None]]
    both = [*all_runs(given.folder), *[sweep.run for sweep in all_sweeps(given.folder)]]
    sweeps = {sweep.path: Selection(sweep) for sweep in all_sweeps(given.folder)}
    return [sweeps.get(run.path, run) for run in sorted(both, key=created, reverse=True)]


def _top(one: RunFolder | Selection) -> RunFolder:
    """The run, or the sweep as one."""
    return one if isinstance(one, RunFolder) else one.sweep.run
