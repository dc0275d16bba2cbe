"""Shows runs: a page of one, a line each of several; once, as JSON, or redrawn until they have ended."""

from __future__ import annotations

import argparse
import json
import sys

from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.open_folders import holding
from slurmopt.runs.replaced_folders import MOST, refuse_swapped, remarks
from slurmopt.runs.status.query import Status, as_dict, gather
from slurmopt.runs.status.view import page, rows
from slurmopt.runs.status.watch import redraw
from slurmopt.runs.table import terminal_width


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
