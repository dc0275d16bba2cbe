"""`slurmopt tend` over sweeps: what had no room yet is submitted first, then all is as for runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from slurmopt.errors import SlurmError, SlurmoptError, SlurmUnconfigured, SlurmUnreachable, with_place
from slurmopt.grid.submissions import Submission, cancelled
from slurmopt.run_folder import events
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.find import all_sweeps
from slurmopt.runs.ownership import is_mine
from slurmopt.runs.recovery import tend
from slurmopt.runs.recovery.action import Action
from slurmopt.runs.submit import arrays
from slurmopt.runs.submit.exactly_once import locked
from slurmopt.slurm.find_job import with_token
from slurmopt.slurm.queue import queue
from slurmopt.sweeps.status.query import has_lost
from slurmopt.sweeps.submit import backlog


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    return tend.main(argv, _of_sweeps)


def _of_sweeps(folder: Path, dry_run: bool) -> Iterator[Action]:
    for sweep in all_sweeps(folder):
        if not is_mine(sweep.run):  # others' are theirs to tend
            continue
        try:
            known = arrays.known(sweep)
        except OSError:  # `tend` says so itself
            continue
        yield from _noted(sweep, known, dry_run)
        # One of which nothing was ever submitted, its launch broken off, is not to start by itself one day.
        if not dry_run and sweep.more.exists() and any(one.job is not None for one in known):
            _refuse_unreachable()
            backlog.main([str(sweep.path)])


def _refuse_unreachable() -> None:
    """Raises SlurmUnreachable at once for all sweeps: each would await slurmctld's answer for minutes."""
    try:
        queue()
    except SlurmError as error:
        if isinstance(error, SlurmUnreachable) and not isinstance(error, SlurmUnconfigured):  # others cost no time
            raise


def _noted(sweep: SweepFolder, known: list[Submission], dry_run: bool) -> Iterator[Action]:
    """Notes the jobs of submissions that broke off once Slurm had them."""
    try:
        if not has_lost(sweep, known, cancelled(sweep), fresh=False):
            return
        found = _in_queue(_own(sweep, known))
        if found and not dry_run:
            with locked(sweep.run, patience=0) as mine:
                if not mine:
                    return
                arrays.note(sweep, found)
        for one in found:
            yield Action(sweep.name, sweep.id, str(sweep.path), "noted", job=one.job)
    except SlurmUnreachable:  # nor can the others be looked at
        raise
    except (SlurmoptError, OSError) as error:
        yield Action(sweep.name, sweep.id, str(sweep.path), "failed", error=with_place(error))


def _own(sweep: SweepFolder, known: list[Submission]) -> list[Submission]:
    """Those without a job that were not made for a point or an array task, which is tended by its own journal."""
    of_parts = {event.get("token") for event in events.read(sweep.events, "submitting") if "part" in event}
    return [one for one in known if one.job is None and one.token is not None and one.token not in of_parts]


def _in_queue(lost: list[Submission]) -> list[Submission]:
    jobs = queue() if lost else {}
    found = [replace(one, job=with_token(jobs, one.token or "")) for one in lost]
    return [one for one in found if one.job is not None]
