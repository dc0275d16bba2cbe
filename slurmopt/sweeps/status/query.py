"""Looking at a sweep: its submissions, what points have said of themselves, and one squeue for all.

The latest submission that has a point decides; within it the point's own latest word, else what Slurm has of it.
"""

from __future__ import annotations

import sys
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from slurmopt.errors import SlurmoptError, labelled, one_line, with_place
from slurmopt.grid import submissions
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.submissions import Submission
from slurmopt.run_folder import events
from slurmopt.run_folder.json_values import as_int, number
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.journal import Journal
from slurmopt.runs.status.progress import is_fresh, progress
from slurmopt.runs.status.query import LOOKED_FOR, ask_slurm, sure
from slurmopt.runs.status.state import ALIVE, Slurm, state
from slurmopt.runs.submit import arrays
from slurmopt.slurm.states import OVER, WAITING, plain_reason, plain_state
from slurmopt.sweeps.status import point_journals
from slurmopt.sweeps.status.ended_points import Ends
from slurmopt.sweeps.status.packed_points import Packed
from slurmopt.sweeps.status.point_events import Reader
from slurmopt.sweeps.status.point_journals import Task, Trace
from slurmopt.sweeps.status.point_states import Point, Rest, SweepStates

if TYPE_CHECKING:
    from slurmopt.slurm.queue_entry import Queue, QueueEntry

_SKEW = 5.0
"""Seconds by which Slurm's knowledge may lag behind the sweep's journal."""


def standing(sweep: SweepFolder, fresh: bool = False, metrics: bool = False) -> SweepStates:
    """How the sweep is. `fresh`: Slurm is asked now, not through the answer that all share; `metrics`: what the points
    came to is kept, too.

    Raises ConfigError where sweep.json or `cancelled` is damaged, OSError where the journal cannot be read.
    """
    tried = arrays.known(sweep) or submissions.read(sweep.sweep_file)  # a launch may have died between the two
    made = next(iter(events.read(sweep.events, "created")), {})
    count = as_int(made.get("points")) or max((one.points.spans[-1][1] + 1 for one in tried if one.points), default=0)
    slurm, cancelled = None, submissions.cancelled(sweep)
    if has_lost(sweep, tried, cancelled, fresh):  # Slurm may have it all the same
        slurm = ask_slurm(fresh)
        tried = [_found(one, slurm) for one in tried]
    found = SweepStates(sweep, count, tried, Ends(metrics), created=number(made.get("time")))
    look = _Look(found, cancelled, _times(sweep))
    look.read(Reader(metrics))
    if slurm is not None or look.needs_slurm(count):
        look.take(sure(slurm or ask_slurm(fresh), look.wanted(), fresh))
    look.judge()
    found.now = time.time()
    return found


def readable(sweep: SweepFolder) -> SweepStates | None:
    """`standing` where several are shown: of one that cannot be read a line on standard error, and None."""
    try:
        return standing(sweep)
    except (SlurmoptError, OSError) as error:
        print(f"slurmopt: {one_line(labelled(f'{sweep.name}/{sweep.id}', with_place(error)))}", file=sys.stderr)
        return None


def has_lost(sweep: SweepFolder, tried: list[Submission], cancelled: Ranges, fresh: bool) -> bool:
    """Whether Slurm is asked for the job of a submission whose answer was lost. `fresh`: before something is done, for
    each; else only while it may matter: for points that no later job has and nobody has cancelled, and not for ever."""
    lost = [at for at, one in enumerate(tried) if one.job is None]
    if fresh or not lost:
        return bool(lost)
    noted = events.read(sweep.events, "submitting")
    when = {str(event.get("token")): number(event.get("time")) or 0.0 for event in noted}
    for at in lost:
        later = Ranges(span for one in tried[at + 1 :] if one.job is not None for span in one.points.spans)
        is_new = time.time() - when.get(str(tried[at].token), 0.0) < LOOKED_FOR
        if is_new and tried[at].points.minus(later).minus(cancelled):
            return True
    return False


def _found(one: Submission, slurm: Slurm) -> Submission:
    """The submission, with its job where that is known by its token alone."""
    if one.job is not None or one.token is None:
        return one
    from slurmopt.slurm.find_job import with_token

    return replace(one, job=with_token(slurm.jobs, one.token))


def _times(sweep: SweepFolder) -> dict[str, float]:
    """Array job → when it was submitted."""
    noted = events.read(sweep.events, "submitted")
    return {str(event.get("job")): number(event.get("time")) or 0.0 for event in noted}


class _Look:
    """Judges points one submission after the other, the newest first."""

    def __init__(self, found: SweepStates, cancelled: Ranges, submitted: dict[str, float]) -> None:
        self._found = found
        self._cancelled = cancelled
        self._submitted = submitted
        self._tasks: dict[int, list[Task]] = defaultdict(list)
        """By their submission."""
        self._own: dict[int, Trace] = {}
        """Points that are array tasks of their own, and may go on."""
        self._overruled: list[int] = []
        self._owned, self._left = _newest(found)
        self._of_job = {one.job: one.number for one in found.submissions if one.job is not None}
        self._tokens = {one.job: one.token for one in found.submissions}
        self._slurm = Slurm()
        self._queue: Queue | None = None

    def read(self, reader: Reader) -> None:
        """What the points have said; those that have ended for good go into columns at once."""
        sweep, tried = self._found.sweep, self._found.submissions
        if any(one.packed for one in tried):
            owned = {one.number: points for one, points in self._owned if one.packed}
            for task in Packed(sweep, owned, self._cancelled).read(reader, self._found.ends):
                self._tasks[task.submission].append(task)
        if not tried or any(not one.packed for one in tried):
            for point, trace in point_journals.of_points(sweep, reader):
                self._take_own(point, trace)
        self._found.ends.sort()

    def _take_own(self, point: int, trace: Trace) -> None:
        one = next((one for one, mine in self._owned if point in mine), None)
        if one is not None and (one.packed or not self._is_of(trace, one)):
            return
        if trace.journal is None and trace.end is not None:
            self._found.ends.add([trace.end], trace.job, [trace.started], self._cancelled, point)
        else:
            self._own[point] = trace

    def _is_of(self, trace: Trace, one: Submission) -> bool:
        """Whether the point has started in this array job, or in a newer one. A full disk can leave its folder and keep
        the rest away."""
        if trace.job is None and trace.attempt is None:
            return False
        return self._of_job.get(_array(trace.job), one.number) >= one.number

    def needs_slurm(self, count: int) -> bool:
        """Whether one of the `count` points may go on: one that has said so, or one that an array job has."""
        return len(self._found.ends) < count and bool(self._own or self.wanted())

    def wanted(self) -> list[str]:
        """The array jobs whose points may go on."""
        ended = Ranges.of(self._found.ends.numbers)
        return [one.job for one, mine in reversed(self._owned) if one.job is not None and mine.minus(ended)]

    def take(self, slurm: Slurm) -> None:
        """What squeue said of the sweep's array jobs."""
        from slurmopt.slurm.queue_entry import Queue

        self._slurm, self._found.problem = slurm, slurm.problem
        if slurm.problem is None:
            self._queue = Queue({job: entry for job, entry in slurm.jobs.items() if self._mine(entry)})
            self._slurm = Slurm(self._queue, slurm.asked)

    def _mine(self, entry: QueueEntry) -> bool:
        """A cluster built anew counts its jobs from 1."""
        array = entry.job_id.partition("_")[0]
        if array not in self._of_job:
            return False
        token = self._tokens[array]
        return f"{entry.command} ".startswith(f"{self._found.sweep.script} ") or bool(token and token in entry.comment)

    def judge(self) -> None:
        """All points that may go on, and those of which nothing is known."""
        ended = Ranges.of(self._found.ends.numbers)
        for one, mine in self._owned:
            self._packed(one, mine, ended) if one.packed else self._unpacked(one, mine, ended)
        self._unsubmitted(self._left.minus(ended))
        self._found.ends.drop(Ranges.of(sorted(self._overruled)))

    def _unpacked(self, one: Submission, mine: Ranges, ended: Ranges) -> None:
        """Points that are array tasks of their own."""
        seen = list(_among(sorted(self._own), mine))
        for point in seen:
            self._found.points[point] = self._of_trace(point, self._own[point])
        self._waiting(one, mine.minus(ended).minus(Ranges.of(seen)))

    def _of_trace(self, point: int, trace: Trace) -> Point:
        journal = trace.journal
        assert journal is not None
        journal.cancelled = journal.cancelled or point in self._cancelled
        word, detail = self._state(journal)
        return Point(point, word, detail, trace.job, trace.attempt, trace.started, journal.ended)

    def _state(self, journal: Journal) -> tuple[str, str | None]:
        now, fresh = time.time(), False
        if journal.attempt is not None and journal.ended is None and journal.job not in self._slurm.jobs:
            fresh = is_fresh(journal.folder, progress(journal.folder, journal.attempt.number), now)
        return state(journal, self._slurm, fresh, now)

    def _packed(self, one: Submission, mine: Ranges, ended: Ranges) -> None:
        """Points that the parents of array tasks start."""
        left = mine.minus(ended)
        judged = [(task, *self._state(task.journal)) for task in self._tasks[one.number] if left or task.going]
        judged = [told for told in judged if told[1] != "unsubmitted"]  # a journal that tells nothing: Slurm may know
        going = []
        for task, word, why in judged:
            for point, trace in task.going.items():
                self._keep(self._of_packed(point, trace, task, word, why))
                going.append(point)
        left = left.minus(Ranges.of(sorted(going)))
        if one.tasks is not None:
            alive = [(word, why) for _, word, why in judged if word in ALIVE]
            if judged and (alive or len(judged) == one.size):
                self._add(left, "pending" if alive else _unstarted(*judged[0][1:])[0], None)
                return
        elif left:
            for task, word, why in judged:
                held = one.points_of(task.number).both(left)
                self._add(held, *_unstarted(word, why))
                left = left.minus(held)
        self._waiting(one, left)

    def _keep(self, point: Point) -> None:
        """A point of a search may have been in several array tasks."""
        ends = self._found.ends
        row = ends.row(point.number)
        if row is not None:
            if (ends.attempt(row) or 0) >= (point.attempt or 0):
                return
            self._overruled.append(point.number)
        known = self._found.points.get(point.number)
        if known is None or (point.attempt or 0) >= (known.attempt or 0):
            self._found.points[point.number] = point

    def _of_packed(self, point: int, trace: Trace, task: Task, word: str, why: str | None) -> Point:
        cancelled, detail = point in self._cancelled, why
        if word not in ALIVE:
            word = "cancelled" if cancelled else "lost" if word == "finished" else word
        elif cancelled:
            word, detail = "stopping", None
        elif trace.end is not None or word != "running" or _is_older(trace, task):
            word = word if word == "stopping" else "requeued"
        return Point(point, word, detail, trace.job, trace.attempt, trace.started)

    def _waiting(self, one: Submission, points: Ranges) -> None:
        """Points that have said nothing: what Slurm has of their array tasks."""
        array = str(one.job)
        for first, last, entry in self._entries(array):
            some = one.points if one.tasks is not None else one.points_between(first, last)
            some = some.both(points)
            self._add(some, *_of_entry(entry))
            points = points.minus(some)
        self._add(points, *self._unlisted(array))

    def _entries(self, array: str) -> Iterator[tuple[int, int, QueueEntry]]:
        """The array's tasks in Slurm: first, last, entry."""
        if self._queue is None:
            return
        for spans, entry in self._queue.waiting(array):
            for span in spans:
                for at in span if span.step > 1 else ():
                    yield at, at, entry
                if span.step == 1 and len(span):
                    yield span[0], span[-1], entry
        for job, entry in self._queue.items():
            task = job.removeprefix(f"{array}_")
            if task != job and task.isdecimal():
                yield int(task), int(task), entry

    def _unlisted(self, array: str) -> tuple[str, str | None]:
        if self._slurm.problem is not None:
            return "pending", "as the journal says; Slurm was not asked"
        if self._slurm.asked - _SKEW < self._submitted.get(array, 0.0):
            return "pending", "submitted a moment ago"
        if self._queue is not None and any(_array(job) == array for job in self._queue):
            # A task that is cancelled before its start leaves no trace in Slurm, while the array goes on.
            return "cancelled", "Slurm has it no longer, and it never started"
        return "lost", f"Slurm no longer knows job {array}, and it never started"

    def _unsubmitted(self, points: Ranges) -> None:
        """Points that no array job is known to have. The answer to the submission may have been lost, though."""
        seen = list(_among(sorted(self._own), points))
        for point in seen:
            self._found.points[point] = self._of_trace(point, self._own[point])
        self._add(points.minus(Ranges.of(seen)), "unsubmitted", None)

    def _add(self, points: Ranges, word: str, detail: str | None) -> None:
        gone = points.both(self._cancelled) if word in (*ALIVE, "lost", "unsubmitted", "cancelled") else Ranges()
        if word in ALIVE:
            self._found.withdrawn = self._found.withdrawn.union(gone)
        for rest in (Rest(points.minus(gone), word, detail), Rest(gone, "cancelled")):
            if rest.points:
                self._found.rest.append(rest)


def _newest(found: SweepStates) -> tuple[list[tuple[Submission, Ranges]], Ranges]:
    """The array jobs, the newest first, each with the points that no newer one has; and the points that none has."""
    owned, left = [], Ranges([(0, found.count - 1)] if found.count else [])
    for one in reversed([one for one in found.submissions if one.job is not None]):
        mine = one.points.both(left)
        owned.append((one, mine))
        left = left.minus(mine)
    return owned, left


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


def _unstarted(word: str, why: str | None) -> tuple[str, str | None]:
    """The state of a point that its array task, in state `word`, has not started."""
    if word in ALIVE:
        return "pending", None
    return ("lost", "its array task ended without starting it") if word == "finished" else (word, why)


def _of_entry(entry: QueueEntry) -> tuple[str, str | None]:
    """The state of a point that has said nothing, by its array task."""
    word = plain_state(entry.state)
    if word in WAITING:
        return "pending", plain_reason(entry.reason)
    if word not in OVER:
        return "running", None
    if word == "cancelled":
        return "cancelled", None
    why = plain_reason(entry.reason)
    said = f"Slurm says {word}{f', {why}' if why else ''}; it left no verdict"
    return ("lost" if word == "finished" else "killed"), said
