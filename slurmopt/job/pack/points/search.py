"""Chooses the points of a search: each array task asks the study for trials, and reports how they ended.

A trial's number is its point's. The study's attribute `worker` of a trial names the array task that runs it; it is
written with the trial in one record. So a worker that starts again first goes on with its own trials that have not
ended, then takes over those of workers that have ended for good by their own journal, and only then asks for new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from slurmopt.grid.point_folder import make_point
from slurmopt.grid.points import Points
from slurmopt.grid.records import Records
from slurmopt.grid.search.space import suggest
from slurmopt.job.pack.journal import TaskJournal, end_of_event
from slurmopt.job.pack.points.ownership import Ownership
from slurmopt.job.point_end import End
from slurmopt.job.worker import current_run
from slurmopt.job.worker.trial_judge import Judge
from slurmopt.job.worker.trial_study import Study
from slurmopt.job.worker.tuning_judge import tuning_judge
from slurmopt.restart import causes
from slurmopt.run_folder import attempts as story
from slurmopt.run_folder.attempts import Attempt
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import FINISHED, KILLED
from slurmopt.run_folder.sweep_layout import SweepFolder

if TYPE_CHECKING:
    pass


class Trials:
    """A `PointSource` that takes trials from the sweep's study and reports their ends, as the worker
    `submission`-`task`."""

    def __init__(
        self, sweep: SweepFolder, points: Points, submission: int, task: int, job: str, journal: TaskJournal
    ) -> None:
        """JobError if Optuna is not installed, ConfigError if the study is damaged or belongs to another sweep."""
        self._sweep, self._points, self._job, self._journal = sweep, points, job, journal
        self._me = f"{submission}-{task}"
        self._ownership = Ownership(sweep, submission, shared=True)
        self._study = Study(sweep)
        self._records = Records(sweep)
        self._running: set[int] = set()
        self._new: set[int] = set()
        """Trials that no other worker has had, so that the other workers' records need not be searched."""

    @property
    def total(self) -> int | None:
        return None

    def next(self) -> int | None:
        """A trial of an earlier attempt of this worker, one whose worker is gone, or a new one; None if there are no
        more."""
        while (number := self._unfinished()) is not None:
            if not self._settled(number, self._records.journal(number)):
                self._running.add(number)
                return number
        while (number := self._study.ask(self._me)) is not None:
            self._new.add(number)
            if not self._settled(number, []):
                self._running.add(number)
                return number
        return None

    def make(self, point: int) -> RunFolder:
        values = suggest(self._points.axes, self._study.trial(point))
        records = None if point in self._new else self._records
        return make_point(self._sweep, self._points, point, self._job, None, values, self._me, records)

    def began(self, point: int) -> None:
        if self._study.search.tunes:
            values = suggest(self._points.axes, self._study.trial(point))
            current_run.judge_by(tuning_judge(self._study.search, values))
        elif self._study.search.prunes:
            current_run.judge_by(Judge(self._sweep, point, self._study.search.metric))

    def ended(self, end: End) -> None:
        """Reports an end to the study, unless the trial ended because its worker was cancelled: another worker
        continues it."""
        if end.cause != causes.CANCELLED or end.point in self._ownership.cancelled():
            self._study.tell(end)
            self._running.discard(end.point)

    def _unfinished(self) -> int | None:
        for number, worker in self._study.unfinished().items():
            if number not in self._running and (
                worker == self._me or (self._gone(worker) and self._study.hand_over(number, worker, self._me))
            ):
                return number
        return None

    def _gone(self, worker: str) -> bool:
        """Whether the array task has ended for good, by its journal."""
        attempts = story.attempts(RunFolder(self._sweep.tasks / worker))
        return bool(attempts) and _is_final(attempts[-1].end)

    def _settled(self, number: int, journal: list[dict[str, Any]]) -> bool:
        """Whether the trial is not to be run: it is cancelled or not needed, or its worker died between its end and the
        report to the study."""
        attempts = story.of_events(journal)
        last = attempts[-1] if attempts else None
        if last is not None and last.end is not None and _is_over(last):
            end = end_of_event(number, last.number, last.end)
            if not self._journal.has_ended(number):
                self._journal.end(end)
        elif not attempts and self._study.is_answered():
            end = End(point=number, attempt=None, outcome=FINISHED, cause=causes.FINISHED, next=None, pruned=True)
            self._journal.end(end)
        elif number in self._ownership.cancelled():
            end = End(point=number, attempt=None, outcome=KILLED, cause=causes.CANCELLED, next=None, error="cancelled")
        else:
            return False
        self._study.tell(end)
        return True


def _is_final(end: Mapping[str, Any] | None) -> bool:
    return end is not None and end.get("next") is None


def _is_over(last: Attempt) -> bool:
    """Whether a trial needs no further attempt: its end is final, and not only that of its worker."""
    return _is_final(last.end) and last.since_retry and last.cause != causes.CANCELLED
