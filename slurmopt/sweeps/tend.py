"""Tends sweeps: submits their backlog, notes jobs whose submission broke off, lists their parts that are tended like
runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from slurmopt.backends.array import start
from slurmopt.backends.array import state as states
from slurmopt.backends.array.queue import unfinished_jobs
from slurmopt.backends.array.state import is_local
from slurmopt.backends.array.then import home_of
from slurmopt.errors import SlurmError, SlurmoptError, SlurmUnconfigured, SlurmUnreachable, with_place
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.submissions import Submission, cancelled, read
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.all_runs import all_sweeps
from slurmopt.runs.ownership import is_mine
from slurmopt.runs.recovery.action import Action
from slurmopt.runs.submit import arrays
from slurmopt.runs.submit.exactly_once import locked
from slurmopt.slurm.find_job import with_token
from slurmopt.slurm.queue import queue
from slurmopt.sweeps.status.query import has_lost
from slurmopt.sweeps.submit import backlog


def tend_sweeps(folder: Path, dry_run: bool) -> Iterator[Action]:
    """Submits what waits for room in Slurm's limits, and notes lost jobs, of all own sweeps in `folder`."""
    for sweep in all_sweeps(folder):
        if not is_mine(sweep.run):  # only their owners can tend them
            continue
        try:
            submissions = arrays.known(sweep)
        except OSError:  # reported when its parts are listed
            continue
        if is_local(sweep):
            yield from _start_runner(sweep, dry_run)
            continue
        yield from _note_lost_jobs(sweep, submissions, dry_run)
        # A sweep whose launch broke off before its first submission must not start by itself one day.
        if not dry_run and sweep.more.exists() and any(entry.job is not None for entry in submissions):
            _refuse_unreachable()
            backlog.main([str(sweep.path)])


def _start_runner(sweep: SweepFolder, dry_run: bool) -> Iterator[Action]:
    """Starts the runner of a sweep on this machine again, where it is gone and array tasks are left, or what follows
    the sweep is not launched."""
    state = states.read(sweep)
    submitted = [str(entry.job) for entry in read(sweep.sweep_file)]
    jobs = unfinished_jobs(sweep, state)
    if not submitted or state.runner_lives is not False or not (jobs or sweep.more.exists()):
        return
    action = Action(sweep.name, sweep.id, str(sweep.path), "submitted", job=[*submitted, *jobs][-1])
    if not dry_run:
        try:
            start.start_runner(sweep, jobs, home_of(sweep))
        except (SlurmoptError, OSError) as error:
            action = Action(sweep.name, sweep.id, str(sweep.path), "failed", error=with_place(error))
    yield action


def _refuse_unreachable() -> None:
    """Raises SlurmUnreachable once for all sweeps: each would wait minutes for slurmctld's answer."""
    try:
        queue()
    except SlurmError as error:
        if isinstance(error, SlurmUnreachable) and not isinstance(error, SlurmUnconfigured):  # others come at once
            raise


def _note_lost_jobs(sweep: SweepFolder, submissions: list[Submission], dry_run: bool) -> Iterator[Action]:
    """Notes the jobs of submissions that broke off after Slurm had accepted them."""
    try:
        if not has_lost(sweep, submissions, cancelled(sweep), fresh=False):
            return
        in_queue = _with_jobs(_without_job(sweep, submissions))
        if in_queue and not dry_run:
            with locked(sweep.run, patience=0) as is_locked:
                if not is_locked:
                    return
                arrays.note(sweep, in_queue)
        for entry in in_queue:
            yield Action(sweep.name, sweep.id, str(sweep.path), "noted", job=entry.job)
    except SlurmUnreachable:  # the other sweeps cannot be looked up either
        raise
    except (SlurmoptError, OSError) as error:
        yield Action(sweep.name, sweep.id, str(sweep.path), "failed", error=with_place(error))


def _without_job(sweep: SweepFolder, submissions: list[Submission]) -> list[Submission]:
    """The submissions without a job, except those of a single point or array task, whose own journal is tended."""
    part_tokens = {event.get("token") for event in events.read(sweep.events, "submitting") if "part" in event}
    return [
        entry
        for entry in submissions
        if entry.job is None and entry.token is not None and entry.token not in part_tokens
    ]


def _with_jobs(lost: list[Submission]) -> list[Submission]:
    """Those of `lost` that are in Slurm's queue, with their jobs."""
    jobs = queue() if lost else {}
    entries = [replace(entry, job=with_token(jobs, entry.token or "")) for entry in lost]
    return [entry for entry in entries if entry.job is not None]


def started_parts(sweep: SweepFolder) -> list[RunFolder]:
    """The parts of a sweep that have a job of their own and have started: array tasks that start several points, and
    points that are array tasks themselves."""
    submissions = arrays.known(sweep)
    array_tasks = Ranges(span for entry in submissions if not entry.packed for span in entry.points.spans)
    points = [sweep.point(number) for number in _point_numbers(sweep.points) if number in array_tasks]
    return [*map(RunFolder, _folders(sweep.tasks)), *points]


def _point_numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in _folders(folder) if path.name.isdecimal())


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
