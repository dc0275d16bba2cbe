"""The points of a search: each array task asks the study for trials and tells it how they ended, on its own.

A trial's number is its point's. The study's attribute `worker` of a trial names the array task that runs it; it is
written with the trial in one record. So a worker that starts again first goes on with its own trials that have not
ended, then takes over those of workers that have ended for good by their own journal, and only then asks for new ones.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from slurmopt.errors import JobError, one_line
from slurmopt.folder.layout import RunFolder
from slurmopt.folder.outcome import FINISHED, KILLED
from slurmopt.folder.sweep import SweepFolder
from slurmopt.grid.points import Points
from slurmopt.grid.records import Records
from slurmopt.grid.search import Search, following, suggest
from slurmopt.grid.start import make_point
from slurmopt.runtime import run
from slurmopt.runtime.conclusion import say
from slurmopt.runtime.pack.journal import TaskJournal, end_of_event
from slurmopt.runtime.pack.ownership import Ownership
from slurmopt.runtime.pack.source import End
from slurmopt.survival import causes, story
from slurmopt.survival.story import Attempt

if TYPE_CHECKING:
    import optuna

WORKER, ERROR, PRUNED = "worker", "error", "pruned"
"""Attributes of a trial: who runs it, why it counts as failed, the step at which it was given up."""


class Trials:
    """A `PointSource` that asks and tells the sweep's study, as the worker `submission`-`task`."""

    def __init__(
        self, sweep: SweepFolder, points: Points, submission: int, task: int, job: str, journal: TaskJournal
    ) -> None:
        """JobError where Optuna is not installed, ConfigError where the study is another sweep's or damaged."""
        self._sweep, self._points, self._job, self._journal = sweep, points, job, journal
        self._me = f"{submission}-{task}"
        self._ownership = Ownership(sweep, submission, shared=True)
        self._study = Study(sweep)
        self._records = Records(sweep)
        self._running: set[int] = set()
        self._new: set[int] = set()
        """Trials that no other worker has had: to look for records of them would take a look at each worker's."""

    @property
    def total(self) -> int | None:
        return None

    def next(self) -> int | None:
        """An own trial of an earlier attempt, one whose worker is gone, or a new one; None: all are asked for."""
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
        if self._study.search.prunes:
            run.judge_by(Judge(self._sweep, point, self._study.search.metric))

    def ended(self, end: End) -> None:
        """A trial that ends because its worker is cancelled is not over: another worker goes on with it."""
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
        """Whether the array task has ended and nobody brings it back: by its journal, for nothing else is sure."""
        attempts = story.attempts(RunFolder(self._sweep.tasks / worker))
        return bool(attempts) and _is_final(attempts[-1].end)

    def _settled(self, number: int, journal: list[dict[str, Any]]) -> bool:
        """Whether nothing of the trial is to be run: its worker died between its end and telling the study of it, or
        it is cancelled."""
        attempts = story.of_events(journal)
        last = attempts[-1] if attempts else None
        if last is not None and last.end is not None and _is_over(last):
            end = end_of_event(number, last.number, last.end)
            if not self._journal.has_ended(number):
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
    """Whether a trial needs no further attempt: its end is final, and was not just its worker's."""
    return _is_final(last.end) and last.since_retry and last.cause != causes.CANCELLED


class Study:
    """The sweep's study, as one process sees it."""

    def __init__(self, sweep: SweepFolder) -> None:
        """JobError where Optuna is not installed, ConfigError where the study is another sweep's or damaged."""
        try:
            from slurmopt.grid import study
        except ImportError as error:
            raise JobError(
                f"{sys.executable} lacks {error.name}, which sweep.search needs: pip install 'optuna>=4.3'"
            ) from error
        self._open = study
        self._name = f"{sweep.name}/{sweep.id}"
        self._file, self._storage = study.open_storage(sweep.study)
        self.search: Search = study.find(sweep.study, self._name, self._storage)
        self._id = self._storage.get_study_id_from_name(self._name)

    def ask(self, worker: str) -> int | None:
        """The number of a new trial, which is `worker`'s; None where all have been asked for."""
        from optuna.trial import TrialState, create_trial

        with self._file.turn():  # or two workers could both see that one is left
            if self._storage.get_n_trials(self._id) >= self.search.trials:
                return None
            new = create_trial(state=TrialState.RUNNING, user_attrs={WORKER: worker})
            return self._storage.get_trial(self._storage.create_new_trial(self._id, new)).number

    def trial(self, number: int, steps: int | None = None) -> optuna.Trial:
        """The trial, to be asked for values, or to be judged; `steps`: how many it is to make."""
        import optuna

        study = self._open.study_for(self._storage, self._name, self.search, number, steps)
        return optuna.Trial(study, self._trial_id(number))

    def unfinished(self) -> dict[int, str]:
        """The trials that have been asked for and not told of, and the worker of each."""
        from optuna.trial import TrialState

        running = self._storage.get_all_trials(self._id, deepcopy=False, states=(TrialState.RUNNING,))
        return {trial.number: str(trial.user_attrs.get(WORKER)) for trial in running}

    def hand_over(self, number: int, before: str, worker: str) -> bool:
        """Makes the trial `worker`'s; False where it is not `before`'s any more."""
        with self._file.turn():
            if self.unfinished().get(number) != before:
                return False
            self._storage.set_trial_user_attr(self._trial_id(number), WORKER, worker)
            return True

    def tell(self, end: End) -> None:
        """How a trial ended; nothing, where the study knows already."""
        from optuna.trial import TrialState

        trial_id = self._trial_id(end.point)
        if self._storage.get_trial(trial_id).state.is_finished():
            return
        study = self._open.study_for(self._storage, self._name, self.search, end.point)
        if end.pruned:
            study.tell(end.point, state=TrialState.PRUNED)
            return
        value = self._value(end)
        if isinstance(value, float):
            study.tell(end.point, value)
            return
        self._storage.set_trial_user_attr(trial_id, ERROR, value)
        study.tell(end.point, state=TrialState.FAIL)
        if end.outcome == FINISHED:  # nothing else says so
            say(f"trial {end.point} counts as failed: {value}")

    def _value(self, end: End) -> float | str:
        """What the trial is worth; a text says why nobody can tell."""
        if end.outcome != FINISHED:
            return one_line(end.error or end.cause)
        return value_of(self.search, end.metrics, end.result)

    def _trial_id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, number)


def value_of(search: Search, metrics: Any, result: Any) -> float | str:
    """What the trial is worth; a text says why nobody can tell."""
    told = metrics if isinstance(metrics, Mapping) else {}
    returned = result if isinstance(result, Mapping) else {}
    found = returned.get(search.metric, told.get(search.metric))
    if found is None and not search.command:
        found = result
    if _is_number(found):
        return f"{search.metric or 'the result'} is nan" if math.isnan(found) else float(found)
    if search.metric is None:
        return f"the function returned a {type(result).__name__}; valid: a number, or a name of one in sweep.metric"
    there = ", ".join(sorted({*map(str, told), *map(str, returned)})) or "nothing"
    return f"no number {search.metric!r} was returned or given to progress(); there was: {there}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def join(sweep: SweepFolder, number: int) -> None:
    """From here on `progress` asks whether the trial is worth going on. For a Python that the parent did not fork."""
    search = Study(sweep).search
    if search.prunes:
        run.judge_by(Judge(sweep, number, search.metric))


class Judge:
    """In a trial's process: tells the study of the metric step by step, and asks whether to go on."""

    def __init__(self, sweep: SweepFolder, number: int, metric: str | None) -> None:
        self._sweep, self._number, self._metric = sweep, number, metric
        self._trial: optuna.Trial | None = None
        self._due = 0
        self._given_up = False
        self._complained = False

    def __call__(self, step: int, total: int | None, metrics: Mapping[str, float]) -> bool:
        """Whether the trial is to be given up. A study that cannot be written ends no training: it is said once."""
        if self._metric is None or self._metric not in metrics or step < self._due:
            return False
        try:
            return self._judge(step, total, metrics[self._metric])
        except OSError as error:
            if not self._complained:
                say(f"the study cannot be told of this trial: {error}")
            self._complained = True
            return False

    def _judge(self, step: int, total: int | None, value: float) -> bool:
        trial = self._trial = self._trial or self._begin(total)
        if self._given_up or step < self._due:
            return self._given_up
        trial.report(value, step)
        self._due = following(step)
        if trial.should_prune():
            trial.set_user_attr(PRUNED, step)
            self._given_up = True
        return self._given_up

    def _begin(self, total: int | None) -> optuna.Trial:
        """A view of its own: what the parent's process writes must not be taken for this one's."""
        trial = Study(self._sweep).trial(self._number, total)
        so_far = trial.storage.get_trial(trial._trial_id)
        self._given_up = PRUNED in so_far.user_attrs  # in an attempt that did not live to say so
        self._due = following(max(so_far.intermediate_values)) if so_far.intermediate_values else 0
        return trial
