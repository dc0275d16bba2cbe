"""`slurmopt status`: shows the state of runs, sweeps and points.

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
    loader             what its batches cost, in seconds: wait and step (without the wait) of each step, batches of a
                       step; of each batch fetch (in the dataset), fetch_cpu (of that on a CPU), collate, copy
    outcome exit_code rank error                  of the verdict that ended the run
    cause next reason      of the latest attempt's end: why, who brings the run back (requeue, slurm, submit), why so
    budgets                a list of what is used: cause, used (how often the run came back after it), limit
    profiles               the paths of the reports of task.profiler
    checkpoints            tier (scratch, shared, s3) -> the newest durable one there: step, time, checkpoint
    checkpoint_failures    of a tier since its last success: tier, count; step, time and reason of the latest
    checkpoints_damaged    found broken and set aside: tier, checkpoint, time, reason
    restored               where the training went on from last: step, tier, checkpoint, time

With `--all` the last five and `budgets` are null: journals are not searched for them.
Times are numbers; a metric that is not a finite number is null.

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
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from slurmopt import command_output
from slurmopt.run_folder.access.open_folders import holding
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import colour, options
from slurmopt.runs.all_runs import all_runs, all_sweeps, created
from slurmopt.runs.desktop import show_end
from slurmopt.runs.find import Selection, select, top_folder
from slurmopt.runs.replaced_folders import MOST, refuse_swapped, remarks
from slurmopt.runs.status.curve import Curves
from slurmopt.runs.status.query import Status, as_dict, gather
from slurmopt.runs.status.view import page, rows
from slurmopt.runs.status.watch import redraw
from slurmopt.runs.text_table import terminal_width
from slurmopt.sweeps.status.overview import overview, redrawn_overview

if TYPE_CHECKING:
    from slurmopt.report.live import Live, Moment


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    args = parser().parse_args(argv)
    selected = _selected(args)
    runs = [item for item in selected if isinstance(item, RunFolder)]
    if len(runs) == len(selected):
        return _show_runs(args, runs)
    if args.watch:
        with holding([top_folder(item).path for item in selected[:MOST]]):
            redraw(lambda: redrawn_overview(selected, _is_coloured(args)))
        return 0
    shown = overview(selected, details=not args.all)
    _warn(shown.problem)
    if args.json:
        command_output.print_json(shown.as_list())
    else:
        print(shown.text(_is_coloured(args)))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt status`."""
    parser = options.parser("status", "Show the state and progress of runs, and why they wait or failed.")
    parser.add_argument("runs", nargs="*", metavar="RUN", help=options.RUN_HELP)
    parser.add_argument("--all", action="store_true", help="all runs, newest first")
    output = parser.add_mutually_exclusive_group()
    options.add_json(output)
    output.add_argument("--watch", action="store_true", help="redraw until all of them have ended; q quits")
    options.add_color(parser)
    return parser


def _selected(args: argparse.Namespace) -> list[RunFolder | Selection]:
    if not args.all or args.runs:
        return [select(name, args.folder) for name in args.runs or [None]]
    sweeps = {sweep.path: Selection(sweep) for sweep in all_sweeps(args.folder)}
    folders = [*all_runs(args.folder), *(selection.sweep.run for selection in sweeps.values())]
    return [sweeps.get(folder.path, folder) for folder in sorted(folders, key=created, reverse=True)]


def _is_coloured(args: argparse.Namespace) -> bool:
    return colour.wanted(args.color, sys.stdout)


def _show_runs(args: argparse.Namespace, folders: list[RunFolder]) -> int:
    """Prints a page of one run, a line each of several."""
    if args.watch:
        return _watch_runs(folders, _is_coloured(args))
    statuses, problem = gather(folders, details=not args.all)
    _warn(problem)
    if args.json:
        command_output.print_json([as_dict(status, details=not args.all) for status in statuses])
    else:
        print(_text(statuses, _is_coloured(args)))
    return 0


def _watch_runs(folders: list[RunFolder], coloured: bool) -> int:
    live: dict[str, tuple[Live, Moment]] = {}
    awaited: dict[Path, RunFolder] = {}
    curves = Curves()

    def draw() -> tuple[str, list[str], bool]:
        statuses, problem = gather(folders, details=True)
        _show_ends(statuses, awaited)
        jobs = [(status.folder, [status.journal.job]) for status in statuses]
        if len(jobs) == 1:
            refuse_swapped(*jobs[0])
        replaced = remarks(jobs)
        now = _curves(statuses[0], curves) + _now(statuses[0], live) if len(statuses) == 1 else ""
        text = _text(statuses, coloured) + now + (f"\n\nSlurm was not asked: {problem}" if problem else "") + replaced
        alive = any(status.alive or status.state == "unknown" for status in statuses)
        return text, [*(status.state for status in statuses), replaced], alive

    with holding([run.top for run in folders[:MOST]]):
        redraw(draw)
    return 0


def _curves(status: Status, curves: Curves) -> str:
    """The metrics since the watch began, on a terminal; "" where there is one value only."""
    curves.take(status.progress)
    lines = curves.lines(terminal_width() or 0) if sys.stdout.isatty() else []
    return "\n\n" + "\n".join(lines) if lines else ""


def _show_ends(statuses: list[Status], awaited: dict[Path, RunFolder]) -> None:
    """Shows on the desktop which runs have ended since they were seen alive."""
    for status in statuses:
        if status.alive:
            awaited[status.folder.path] = status.folder
        elif status.state != "unknown" and awaited.pop(status.folder.path, None) is not None:
            show_end(status.folder)


def _now(status: Status, live: dict[str, tuple[Live, Moment]]) -> str:
    """What the GPUs of a running attempt do now, and what it wastes, below its page; "" where nothing was measured."""
    attempt = status.journal.attempt
    if not status.alive or attempt is None or attempt.end is not None:
        return ""
    if not status.folder.nodes_with_series(attempt.number):
        return ""
    # Both import the whole report, and msgspec: half as much again as this command needs.
    from slurmopt.report.live import Live, Moment
    from slurmopt.report.output.terminal import plain, styled

    shown = live.get("shown")
    if shown is None or shown[0].attempt != attempt.number:
        shown = live["shown"] = Live(status.folder, attempt.number), Moment(status.folder)
    lines = shown[0].lines(status.now)
    lines += shown[1].lines(status.now) if lines else []
    return "\n\n" + (styled(lines) if sys.stdout.isatty() else plain(lines)) if lines else ""


def _text(statuses: list[Status], coloured: bool) -> str:
    return page(statuses[0], coloured) if len(statuses) == 1 else rows(statuses, terminal_width(), coloured)


def _warn(problem: str | None) -> None:
    """Says on standard error that Slurm was not asked, and why."""
    if problem:
        command_output.warn(f"Slurm was not asked, so this is what journals and heartbeats say: {problem}")
