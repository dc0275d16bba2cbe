"""The study of a search as one process of the job uses it: asks for trials, and reports how they ended."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from slurmopt.errors import JobError, one_line
from slurmopt.grid.search.space import Search
from slurmopt.job.point_end import End
from slurmopt.job.supervisor.attempt_end import say
from slurmopt.run_folder.outcome import FINISHED
from slurmopt.run_folder.sweep_layout import SweepFolder

if TYPE_CHECKING:
    import optuna


WORKER, ERROR, CAUSE, PRUNED, MEASURED = "worker", "error", "cause", "pruned", "measured"
"""Attributes of a trial: who runs it, why it counts as failed and the word for that, the step at which it was given up,
its metrics."""


class Study:
    """The study of a sweep, as one process uses it."""

    def __init__(self, sweep: SweepFolder) -> None:
        """JobError if Optuna is not installed, ConfigError if the study is damaged or belongs to another sweep."""
        try:
            from slurmopt.grid.search import study
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
        """The number of a new trial for `worker`; None if all trials have been asked for."""
        from optuna.trial import TrialState, create_trial

        with self._file.turn():  # or two workers could both see that one is left
            if self._storage.get_n_trials(self._id) >= self.search.trials:
                return None
            new = create_trial(state=TrialState.RUNNING, user_attrs={WORKER: worker})
            return self._storage.get_trial(self._storage.create_new_trial(self._id, new)).number

    def is_answered(self) -> bool:
        """Whether no further trial would tell more: `slurmopt tune` needs fewer than it may make."""
        from slurmopt.grid.search.tuning_sampler import is_answered

        return self.search.tunes and is_answered(
            self.search.method, self._storage.get_all_trials(self._id, deepcopy=False)
        )

    def trial(self, number: int, steps: int | None = None) -> optuna.Trial:
        """The trial, to ask it for values or to judge it. `steps` is the number of steps that it will make."""
        import optuna

        study = self._open.study_for(self._storage, self._name, self.search, number, steps)
        return optuna.Trial(study, self._trial_id(number))

    def unfinished(self) -> dict[int, str]:
        """The trials that were asked for and whose result is not known, with their workers."""
        from optuna.trial import TrialState

        running = self._storage.get_all_trials(self._id, deepcopy=False, states=(TrialState.RUNNING,))
        return {trial.number: str(trial.user_attrs.get(WORKER)) for trial in running}

    def hand_over(self, number: int, before: str, worker: str) -> bool:
        """Assigns the trial to `worker`; False if it no longer belongs to `before`."""
        with self._file.turn():
            if self.unfinished().get(number) != before:
                return False
            self._storage.set_trial_user_attr(self._trial_id(number), WORKER, worker)
            return True

    def tell(self, end: End) -> None:
        """Reports how a trial ended, unless the study knows it already."""
        from optuna.trial import TrialState

        trial_id = self._trial_id(end.point)
        if self._storage.get_trial(trial_id).state.is_finished():
            return
        study = self._open.study_for(self._storage, self._name, self.search, end.point)
        if end.pruned and (not self.search.tunes or end.metrics is None):
            study.tell(end.point, state=TrialState.PRUNED)
            return
        value = self._value(end)
        if isinstance(value, float):
            if self.search.tunes:
                self._storage.set_trial_user_attr(trial_id, MEASURED, end.metrics)
            study.tell(end.point, value)
            return
        self._storage.set_trial_user_attr(trial_id, ERROR, value)
        self._storage.set_trial_user_attr(trial_id, CAUSE, end.cause)
        study.tell(end.point, state=TrialState.FAIL)
        if end.outcome == FINISHED:  # nothing else says so
            say(f"trial {end.point} counts as failed: {value}")

    def _value(self, end: End) -> float | str:
        """What the trial is worth; a text says why nobody can tell."""
        if end.outcome != FINISHED:
            return one_line(end.error or end.cause)
        if self.search.tunes and not end.pruned:
            return f"the training ended after {end.step or 0} steps; a trial needs {self.search.steps} (sweep.steps)"
        return value_of(self.search, end.metrics, end.result)

    def _trial_id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, number)


def value_of(search: Search, metrics: Any, result: Any) -> float | str:
    """What the trial is worth; a text says why nobody can tell."""
    reported = metrics if isinstance(metrics, Mapping) else {}
    returned = result if isinstance(result, Mapping) else {}
    value = returned.get(search.metric, reported.get(search.metric))
    if value is None and not search.command:
        value = result
    if _is_number(value):
        return f"{search.metric or 'the result'} is nan" if math.isnan(value) else float(value)
    if search.metric is None:
        return f"the function returned a {type(result).__name__}; valid: a number, or a name of one in sweep.metric"
    available = ", ".join(sorted({*map(str, reported), *map(str, returned)})) or "nothing"
    return f"no number {search.metric!r} was returned or given to progress(); there was: {available}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
