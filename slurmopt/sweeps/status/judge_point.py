"""Judges in which state each point of a sweep is.

The newest submission that has a point decides; within it the point's own latest event, else what Slurm says of the job.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.submissions import Submission
from slurmopt.runs.journal import Journal
from slurmopt.runs.status.progress import is_fresh, progress
from slurmopt.runs.status.state import ALIVE, Slurm, run_state
from slurmopt.slurm.states import OVER, WAITING, plain_reason, plain_state
from slurmopt.sweeps.status import point_journals
from slurmopt.sweeps.status.packed_points import Packed
from slurmopt.sweeps.status.point_events import Reader
from slurmopt.sweeps.status.point_journals import Task, Trace
from slurmopt.sweeps.status.point_states import Point, Rest, SweepStates

if TYPE_CHECKING:
    from slurmopt.slurm.queue_entry import Queue, QueueEntry


class PointJudge:
    """Judges the points of one submission after the other, the newest first: `read`, `take_queue`, then `judge`."""

    def __init__(self, states: SweepStates, cancelled: Ranges, submitted: dict[str, float]) -> None:
        self._states = states
        self._cancelled = cancelled
        self._submitted = submitted
        self._tasks: dict[int, list[Task]] = defaultdict(list)
        """Submission number → its array tasks."""
        self._own: dict[int, Trace] = {}
        """Points that are array tasks themselves and have not ended for good."""
        self._overruled: list[int] = []
        self._owned, self._unowned = _newest(states)
        self._of_job = {entry.job: entry.number for entry in states.submissions if entry.job is not None}
        self._tokens = {entry.job: entry.token for entry in states.submissions}
        self._slurm = Slurm()
        self._queue: Queue | None = None

    def read(self, reader: Reader) -> None:
        """Reads the events of the points; points that have ended for good go into `ends`."""
        sweep, submissions = self._states.sweep, self._states.submissions
        if any(entry.packed for entry in submissions):
            owned = {entry.number: points for entry, points in self._owned if entry.packed}
            for task in Packed(sweep, owned, self._cancelled).read(reader, self._states.ends):
                self._tasks[task.submission].append(task)
        if not submissions or any(not entry.packed for entry in submissions):
            for point, trace in point_journals.of_points(sweep, reader):
                self._take_own(point, trace)
        self._states.ends.sort()

    def _take_own(self, point: int, trace: Trace) -> None:
        submission = next((submission for submission, owned in self._owned if point in owned), None)
        if submission is not None and (submission.packed or not self._is_of(trace, submission)):
            return
        if trace.journal is None and trace.end is not None:
            self._states.ends.add([trace.end], trace.job, [trace.started], self._cancelled, point)
        else:
            self._own[point] = trace

    def _is_of(self, trace: Trace, submission: Submission) -> bool:
        """Whether the point has started in this array job, or in a newer one. On a full disk its folder can exist
        without any events."""
        if trace.job is None and trace.attempt is None:
            return False
        return self._of_job.get(_array(trace.job), submission.number) >= submission.number

    def needs_slurm(self, count: int) -> bool:
        """Whether one of the `count` points may be unfinished: by its events, or because an array job has it."""
        return len(self._states.ends) < count and bool(self._own or self.unfinished_jobs())

    def unfinished_jobs(self) -> list[str]:
        """The array jobs with points that have not ended."""
        ended = Ranges.of(self._states.ends.numbers)
        return [
            submission.job
            for submission, owned in reversed(self._owned)
            if submission.job is not None and owned.difference(ended)
        ]

    def take_queue(self, slurm: Slurm) -> None:
        """Takes squeue's answer, of which it keeps the sweep's own array jobs."""
        from slurmopt.slurm.queue_entry import Queue

        self._slurm, self._states.problem = slurm, slurm.problem
        if slurm.problem is None:
            self._queue = Queue({job: entry for job, entry in slurm.jobs.items() if self._is_own(entry)})
            self._slurm = Slurm(self._queue, slurm.asked, here=slurm.here)

    def _is_own(self, entry: QueueEntry) -> bool:
        """Whether the job is the sweep's: on a cluster that was rebuilt, job ids start from 1 again."""
        array = entry.job_id.partition("_")[0]
        if array not in self._of_job:
            return False
        token = self._tokens[array]
        return f"{entry.command} ".startswith(f"{self._states.sweep.script} ") or bool(token and token in entry.comment)

    def judge(self) -> None:
        """Judges all points that have not ended for good, and those without any events."""
        ended = Ranges.of(self._states.ends.numbers)
        for submission, owned in self._owned:
            self._packed(submission, owned, ended) if submission.packed else self._unpacked(submission, owned, ended)
        self._unsubmitted(self._unowned.difference(ended))
        self._states.ends.drop(Ranges.of(sorted(self._overruled)))

    def _unpacked(self, submission: Submission, owned: Ranges, ended: Ranges) -> None:
        """Points that are array tasks themselves."""
        started = list(_among(sorted(self._own), owned))
        for point in started:
            self._states.points[point] = self._of_trace(point, self._own[point])
        self._waiting(submission, owned.difference(ended).difference(Ranges.of(started)))

    def _of_trace(self, point: int, trace: Trace) -> Point:
        journal = trace.journal
        assert journal is not None
        journal.cancelled = journal.cancelled or point in self._cancelled
        state, detail = self._state(journal)
        return Point(point, state, detail, trace.job, trace.attempt, trace.started, journal.ended)

    def _state(self, journal: Journal) -> tuple[str, str | None]:
        now, fresh = time.time(), False
        if journal.attempt is not None and journal.ended is None and journal.job not in self._slurm.jobs:
            fresh = is_fresh(journal.folder, progress(journal.folder, journal.attempt.number), now)
        return run_state(journal, self._slurm, fresh, now)

    def _packed(self, submission: Submission, owned: Ranges, ended: Ranges) -> None:
        """Points that share array tasks."""
        remaining = owned.difference(ended)
        judged = [
            (task, *self._state(task.journal)) for task in self._tasks[submission.number] if remaining or task.going
        ]
        # Slurm may know more of a task whose journal is empty.
        judged = [verdict for verdict in judged if verdict[1] != "unsubmitted"]
        started = []
        for task, state, why in judged:
            for point, trace in task.going.items():
                self._keep(self._of_packed(point, trace, task, state, why))
                started.append(point)
        remaining = remaining.difference(Ranges.of(sorted(started)))
        if submission.tasks is not None:
            alive = [(state, why) for _, state, why in judged if state in ALIVE]
            if judged and (alive or len(judged) == submission.size):
                self._add(remaining, "pending" if alive else _unstarted(*judged[0][1:])[0], None)
                return
        elif remaining:
            for task, state, why in judged:
                held = submission.points_of(task.number).intersection(remaining)
                self._add(held, *_unstarted(state, why))
                remaining = remaining.difference(held)
        self._waiting(submission, remaining)

    def _keep(self, point: Point) -> None:
        """Keeps the point's latest attempt: a point of a search may have been in several array tasks."""
        ends = self._states.ends
        row = ends.row(point.number)
        if row is not None:
            if (ends.attempt(row) or 0) >= (point.attempt or 0):
                return
            self._overruled.append(point.number)
        previous = self._states.points.get(point.number)
        if previous is None or (point.attempt or 0) >= (previous.attempt or 0):
            self._states.points[point.number] = point

    def _of_packed(self, point: int, trace: Trace, task: Task, state: str, why: str | None) -> Point:
        cancelled, detail = point in self._cancelled, why
        if state not in ALIVE:
            state = "cancelled" if cancelled else "lost" if state == "finished" else state
        elif cancelled:
            state, detail = "stopping", None
        elif trace.end is not None or state != "running" or _is_older(trace, task):
            state = state if state == "stopping" else "requeued"
        return Point(point, state, detail, trace.job, trace.attempt, trace.started)

    def _waiting(self, submission: Submission, points: Ranges) -> None:
        """Points without events: their states are those of their array tasks in Slurm."""
        array = str(submission.job)
        for first, last, entry in self._entries(array):
            task_points = submission.points if submission.tasks is not None else submission.points_between(first, last)
            task_points = task_points.intersection(points)
            self._add(task_points, *_of_entry(entry))
            points = points.difference(task_points)
        self._add(points, *self._unlisted(array))

    def _entries(self, array: str) -> Iterator[tuple[int, int, QueueEntry]]:
        """The array's tasks in Slurm: first, last, entry."""
        if self._queue is None:
            return
        for spans, entry in self._queue.waiting(array):
            for span in spans:
                for task in span if span.step > 1 else ():
                    yield task, task, entry
                if span.step == 1 and len(span):
                    yield span[0], span[-1], entry
        for job, entry in self._queue.items():
            number = job.removeprefix(f"{array}_")
            if number != job and number.isdecimal():
                yield int(number), int(number), entry

    def _unlisted(self, array: str) -> tuple[str, str | None]:
        if self._slurm.problem is not None:
            return "pending", "as the journal says; Slurm was not asked"
        if self._slurm.asked - self._slurm.lag < self._submitted.get(array, 0.0):
            return "pending", "submitted a moment ago"
        if self._slurm.here:
            return "lost", "its runner on this machine is gone; `slurmopt tend` starts it again"
        if self._queue is not None and any(_array(job) == array for job in self._queue):
            # A task that is cancelled before its start leaves no trace in Slurm, while the array goes on.
            return "cancelled", "Slurm has it no longer, and it never started"
        return "lost", f"Slurm no longer knows job {array}, and it never started"

    def _unsubmitted(self, points: Ranges) -> None:
        """Points that no array job has. They may have started all the same, where a submission's answer was lost."""
        started = list(_among(sorted(self._own), points))
        for point in started:
            self._states.points[point] = self._of_trace(point, self._own[point])
        self._add(points.difference(Ranges.of(started)), "unsubmitted", None)

    def _add(self, points: Ranges, state: str, detail: str | None) -> None:
        cancelled = Ranges() if state in ("finished", "unknown") else points.intersection(self._cancelled)
        if state in ALIVE:
            self._states.withdrawn = self._states.withdrawn.union(cancelled)
        for rest in (Rest(points.difference(cancelled), state, detail), Rest(cancelled, "cancelled")):
            if rest.points:
                self._states.rest.append(rest)


def _newest(states: SweepStates) -> tuple[list[tuple[Submission, Ranges]], Ranges]:
    """The array jobs, newest first, each with the points that no newer one has; and the points that none has."""
    owned, remaining = [], Ranges([(0, states.count - 1)] if states.count else [])
    for entry in reversed([entry for entry in states.submissions if entry.job is not None]):
        points = entry.points.intersection(remaining)
        owned.append((entry, points))
        remaining = remaining.difference(points)
    return owned, remaining


def _among(numbers: list[int], points: Ranges) -> Iterator[int]:
    """Those of the sorted `numbers` that are in `points`."""
    for first, last in points.spans:
        yield from numbers[bisect_left(numbers, first) : bisect_right(numbers, last)]


def _array(job: str | None) -> str:
    return (job or "").partition("_")[0]


def _is_older(trace: Trace, task: Task) -> bool:
    """Whether the array task has started again since it started the point."""
    latest = task.journal.attempt.started if task.journal.attempt else None
    return trace.started is not None and latest is not None and trace.started < latest


def _unstarted(state: str, why: str | None) -> tuple[str, str | None]:
    """The state of a point that its array task has not started. `state`, `why`: of the array task."""
    if state in ALIVE:
        return "pending", None
    return ("lost", "its array task ended without starting it") if state == "finished" else (state, why)


def _of_entry(entry: QueueEntry) -> tuple[str, str | None]:
    """The state of a point without events, from its array task's entry in squeue."""
    state = plain_state(entry.state)
    if state in WAITING:
        return "pending", plain_reason(entry.reason)
    if state not in OVER:
        return "running", None
    if state == "cancelled":
        return "cancelled", None
    why = plain_reason(entry.reason)
    detail = f"Slurm says {state}{f', {why}' if why else ''}; it left no verdict"
    return ("lost" if state == "finished" else "killed"), detail
