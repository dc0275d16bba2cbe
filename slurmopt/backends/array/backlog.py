"""The array tasks of a sweep that its runner has to start, in order; it reads the sweep's files when they change."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from slurmopt.backends.array.queue import waiting_tasks
from slurmopt.backends.array.state import ArrayJob, State
from slurmopt.errors import ConfigError
from slurmopt.grid import submissions
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.submissions import Submission
from slurmopt.run_folder import events
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.json_values import as_int
from slurmopt.run_folder.sweep_layout import SweepFolder

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings


class Backlog:
    """What waits for its start."""

    settings: Settings

    def __init__(self, sweep: SweepFolder, state: State) -> None:
        self._sweep, self._state = sweep, state
        self.submissions: list[Submission] = []
        self._cancelled = Ranges()
        self._over: dict[tuple[int, int], bool] = {}
        self._seen: dict[Path, tuple[int, int, int] | None] = {}

    @staticmethod
    def submitted(sweep: SweepFolder) -> list[Submission]:
        """The sweep's submissions, oldest first."""
        return submissions.read(sweep.sweep_file)

    @staticmethod
    def single(number: int) -> Ranges:
        return Ranges([(number, number)])

    def look(self) -> bool:
        """Reads what has changed; returns whether anything has that changes which tasks are to be started."""
        changed = [
            path for path in (self._sweep.config, self._sweep.sweep_file, self._sweep.cancelled) if self._is_new(path)
        ]
        if self._sweep.config in changed:
            self._read_settings()
        if self._sweep.cancelled in changed:
            self._cancelled = submissions.cancelled(self._sweep)
            self._over.clear()
        if self._sweep.sweep_file in changed:
            self.submissions = self.submitted(self._sweep)
        if not {self._sweep.sweep_file, self._sweep.cancelled} & set(changed):
            return False
        for submission in self.submissions:
            job = self._state.jobs.setdefault(str(submission.job), ArrayJob())
            job.ended = job.ended.union(self._not_to_start(submission, job))
            job.again = {task: at for task, at in job.again.items() if task not in job.ended}
        return True

    def _is_new(self, path: Path) -> bool:
        try:
            facts = held(path).stat()
            now = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
        except OSError:
            now = None
        if path in self._seen and self._seen[path] == now:
            return False
        self._seen[path] = now
        return True

    def _read_settings(self) -> None:
        from slurmopt.config.composition.settings import load

        try:
            self.settings = load(self._sweep.config)[1]
        except (ConfigError, OSError):  # it is being replaced, or edited: the old ones hold
            if not hasattr(self, "settings"):
                raise

    def _not_to_start(self, submission: Submission, job: ArrayJob) -> Ranges:
        """The waiting tasks all of whose points are cancelled, or belong to a newer submission."""
        newer = submissions.points_of_newer(self.submissions, submission.number)
        gone = self._cancelled.union(newer)
        waiting = waiting_tasks(submission, job).union(Ranges.of(sorted(job.again)))
        if submission.tasks is not None:
            overtaken = any(other.number > submission.number and other.tasks is not None for other in self.submissions)
            return waiting if overtaken or not submission.points.difference(gone) else Ranges()
        common = submission.points.intersection(gone)
        if not common:
            return Ranges()
        rest = submission.points.difference(gone)
        lost = submission.tasks_of(common)
        return waiting.intersection(lost.difference(submission.tasks_of(rest)) if rest else lost)

    @property
    def has_tasks(self) -> bool:
        """Whether any task waits for a start."""
        return any(self._left(submission) for submission in self.submissions)

    def _left(self, submission: Submission) -> bool:
        job = self._state.jobs[str(submission.job)]
        return bool(job.again or waiting_tasks(submission, job))

    def next(self) -> tuple[Submission, int] | None:
        """The next task that may start now: one that comes back, else the first that waits."""
        for submission in self.submissions:
            job = self._state.jobs[str(submission.job)]
            due = [task for task, at in job.again.items() if at <= time.time()]
            if due:
                return submission, due[0]
            if waiting := waiting_tasks(submission, job):
                return submission, waiting[0]
        return None

    def is_cancelled(self, submission: Submission, number: int) -> bool:
        """Whether the task has no points left that are to go on, because the user has cancelled them."""
        points = submission.points_of(number).intersection(self._cancelled)
        if not points:
            return False
        if not submission.packed:
            return True
        key = (submission.number, number)
        if key not in self._over:
            self._over[key] = self._is_whole(submission, number, points)
        return self._over[key]

    def _is_whole(self, submission: Submission, number: int, cancelled: Ranges) -> bool:
        """Whether all points of a task that starts them itself have ended or are cancelled."""
        numbers = range(submission.size) if submission.tasks is not None else [number]
        ended = Ranges()
        for task in numbers:
            ended = ended.union(_ended_points(self._sweep, submission.number, task))
        left = submission.points_of(number).difference(ended)
        return bool(left.intersection(cancelled)) and not left.difference(cancelled)


def _ended_points(sweep: SweepFolder, submission: int, task: int) -> Ranges:
    path = sweep.task(submission, task).events
    ended: set[int] = set()
    for event in events.read(path, "point") if os.path.exists(held(path)) else []:
        point = as_int(event.get("point"))
        if point is not None:
            is_over = event.get("state") == "ended" and event.get("next") is None
            ended.add(point) if is_over else ended.discard(point)
    return Ranges.of(sorted(ended))
