"""Cancels points of a sweep and waits until they have stopped.

A point that has not started never starts: the sweep's file `cancelled` names it, which array tasks read before they
start a point. The parent process of points that share an array task reads it too, every few seconds, and ends the point
alone.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from slurmopt.backends.array import state
from slurmopt.backends.array.start import start_runner
from slurmopt.backends.array.state import is_local
from slurmopt.errors import RunError, SlurmError, SlurmRefused
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.records import Records
from slurmopt.grid.submissions import Submission
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.find import Selection
from slurmopt.runs.ownership import refuse_others
from slurmopt.runs.status.state import ALIVE
from slurmopt.runs.submit import arrays
from slurmopt.sweeps.status.point_states import SweepStates
from slurmopt.sweeps.status.query import sweep_states
from slurmopt.sweeps.status.view import state_counts
from slurmopt.sweeps.submit import backlog, cancelled_points

_WAIT = 10.0
_POLL = 0.3
_SCANCEL_TIMEOUT = 60.0
_SPANS = 2000
"""Ranges in one argument of scancel: the kernel takes 128 KiB an argument."""
_UNFINISHED = (*ALIVE, "unknown", "unsubmitted")


@dataclass(frozen=True)
class Cancelled:
    """What a cancel did."""

    points: Ranges
    """The points that were told to stop."""
    jobs: list[str]
    """The array jobs and tasks that scancel got."""
    states: SweepStates
    """The sweep once they have stopped, or after ten seconds."""

    @property
    def alive(self) -> int:
        """How many of the points have not stopped yet."""
        return _alive(self.states, self.points)


def cancel(selection: Selection) -> Cancelled:
    """Stops the selected points that have not ended.

    Raises RunError where all have ended or the sweep is another user's, SlurmError where Slurm cannot tell or refuses.
    """
    _refuse_others(selection.sweep)
    states = sweep_states(selection.sweep, fresh=True)
    points = _unfinished(states, selection)
    if selection.points is None and is_local(selection.sweep):
        selection.sweep.more.unlink(missing_ok=True)  # before its runner has ended, which would launch `sweep.then`
    jobs = _cancel(states, points)
    _submit_backlog(selection)
    return Cancelled(points, jobs, _wait(selection.sweep, points))


def _refuse_others(sweep: SweepFolder) -> None:
    """RunError for another user's sweep: only its folder keeps waiting points from being started. The message names the
    scancel that a coordinator can run."""
    try:
        refuse_others(sweep.run)
    except RunError as error:
        submissions = arrays.known(sweep)
        jobs = sorted({entry.job for entry in submissions if entry.job is not None and entry.job.isdecimal()}, key=int)
        if not jobs:
            raise
        raise RunError(f"{error}; as a coordinator: scancel {' '.join(jobs)}") from error


def _submit_backlog(selection: Selection) -> None:
    """Drops the backlog of a sweep that is cancelled as a whole. Of another sweep submits it: the array tasks that
    would have done that may be gone."""
    if selection.points is None:
        selection.sweep.more.unlink(missing_ok=True)
    elif selection.sweep.more.exists() and not is_local(selection.sweep):
        backlog.main([str(selection.sweep.path)])


def _unfinished(states: SweepStates, selection: Selection) -> Ranges:
    """The selected points that have not ended."""
    if states.problem and any(entry.job is None for entry in states.submissions):
        raise SlurmError(f"{selection.label}: it is not known whether Slurm has its latest array job: {states.problem}")
    unfinished = states.numbers(*_UNFINISHED).union(_cancelled_in_queue(states))
    if is_local(selection.sweep):  # the runner that ends the others would start these again
        unfinished = unfinished.union(states.numbers("lost"))
    unfinished = unfinished if selection.points is None else unfinished.intersection(selection.points)
    if not unfinished:
        counts = states.counts(selection.points)
        if set(counts) == {"cancelled"}:
            _submit_backlog(selection)  # an earlier cancel may have been killed before it did that
        singular = selection.point is not None or selection.points is None
        raise RunError(f"{selection.label} {'has' if singular else 'have'} ended already: {state_counts(counts)}")
    return unfinished


def _cancelled_in_queue(states: SweepStates) -> Ranges:
    """Cancelled points whose array tasks are still queued in Slurm although none of their points goes on."""
    unfinished, points = states.numbers(*_UNFINISHED), Ranges()
    for entry in states.submissions:
        cancelled = entry.points.intersection(states.withdrawn)
        if entry.job is None or not cancelled:
            continue
        if entry.tasks is not None:  # the workers of a search share all points
            points = points if entry.points.intersection(unfinished) else points.union(cancelled)
        else:
            tasks = _whole_tasks(entry, cancelled, unfinished)
            points = points.union(
                cancelled.intersection(Ranges(span for task in tasks for span in entry.points_of(task).spans))
            )
    return points


def _cancel(states: SweepStates, points: Ranges) -> list[str]:
    """Cancels `points` and returns scancel's arguments. Where scancel fails, the journals take the cancel back."""
    sweep = states.sweep
    # Noted before scancel, so that a job that ends at once counts as cancelled.
    cancelled_points.add(sweep, points)
    events.append(sweep.events, "cancel", points=str(points))
    states = sweep_states(sweep, fresh=True)  # an array job may have been submitted since
    arrays.note(sweep, states.submissions)  # a job whose submission's answer was lost: a retry must not count it
    noted = note_in_points(states, points)
    try:
        args = list(_scancel_args(states, points))
        if is_local(sweep):
            _end_here(sweep)
        else:
            _scancel(args)
    except BaseException:
        cancelled_points.remove(sweep, points)
        events.append(sweep.events, "cancel-failed", points=str(points))
        for run in noted:
            with contextlib.suppress(OSError):
                events.append(run.events, "cancel-failed")
        raise
    return args


def note_in_points(states: SweepStates, points: Ranges) -> list[RunFolder]:
    """Appends `cancel` to the journals of the points that have started; returns these."""
    noted, records = [], Records(states.sweep)
    for point in states.known(points):
        # The sweep's journal has the cancel of a point that is archived at this moment, or cannot be read.
        with contextlib.suppress(OSError):
            run = records.running(point.number)
            if run is not None:
                events.append(run.events, "cancel", job=point.job)
                noted.append(run)
    return noted


def _scancel_args(states: SweepStates, points: Ranges) -> Iterator[str]:
    """Whole array jobs, or the array tasks all of whose points are cancelled."""
    remaining, unfinished = points, states.numbers(*_UNFINISHED)
    for entry in reversed(states.submissions):
        cancelled = entry.points.intersection(remaining)
        remaining = remaining.difference(cancelled)
        if entry.job is None or not cancelled:
            continue
        if not entry.points.intersection(unfinished).difference(cancelled):
            yield entry.job
        elif entry.tasks is None:
            yield from _task_args(entry, _whole_tasks(entry, cancelled, unfinished))


def _whole_tasks(submission: Submission, points: Ranges, unfinished: Ranges) -> Ranges:
    """The array tasks whose unfinished points are all among `points`."""
    others = submission.points.intersection(unfinished).difference(points)
    return submission.tasks_of(points).difference(submission.tasks_of(others))


def _task_args(submission: Submission, tasks: Ranges) -> Iterator[str]:
    for start in range(0, len(tasks.spans), _SPANS):
        yield f"{submission.job}_[{Ranges(tasks.spans[start : start + _SPANS])}]"


def _end_here(sweep: SweepFolder) -> None:
    """The runner on this machine reads the cancelled points, and ends them. Where it is gone, another one does."""
    if not state.read(sweep).runner_lives:
        start_runner(sweep)


def _scancel(args: list[str]) -> None:
    from slurmopt.slurm import client

    for arg in args:
        try:
            client.run(["scancel", arg], _SCANCEL_TIMEOUT)
        except SlurmRefused as error:
            if "already" not in str(error) and "Invalid job id" not in str(error):  # it may have ended a moment ago
                raise


def _wait(sweep: SweepFolder, points: Ranges) -> SweepStates:
    """The sweep's states once the points have stopped, or when the time is up."""
    deadline, pause = time.monotonic() + _WAIT, _POLL
    while True:
        states = sweep_states(sweep, fresh=True)
        if not _alive(states, points) or time.monotonic() >= deadline:
            return states
        time.sleep(pause)
        pause *= 2


def _alive(states: SweepStates, points: Ranges) -> int:
    counts = states.counts(points)
    return sum(counts.get(state, 0) for state in (*ALIVE, "unknown"))
