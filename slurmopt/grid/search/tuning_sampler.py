"""The sampler of `slurmopt tune`: each trial's value follows from the trials before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from slurmopt.config.sweep import BATCH_SIZE
from slurmopt.grid.search import batch_size, loader_workers

_MEASURED = "measured"
"""The attribute of a trial with its metrics."""
_ENDED = (TrialState.COMPLETE, TrialState.FAIL)


class Following(optuna.samplers.BaseSampler):
    """Suggests the value that the search wants to see next."""

    def __init__(self, method: str) -> None:
        self._method = method

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        assert isinstance(param_distribution, IntDistribution)
        value = _following(self._method, study.get_trials(deepcopy=False), param_distribution)
        return param_distribution.low if value is None else value


def is_answered(method: str, trials: Sequence[FrozenTrial]) -> bool:
    """Whether no further value would tell more. A trial that is under way may."""
    trials = [trial for trial in trials if trial.params]
    values = next((each for trial in trials for each in trial.distributions.values()), None)
    if not isinstance(values, IntDistribution) or any(trial.state == TrialState.RUNNING for trial in trials):
        return False
    return _following(method, trials, values) is None


def _following(method: str, trials: Sequence[FrozenTrial], values: IntDistribution) -> int | None:
    ended = [trial for trial in trials if trial.state in _ENDED and trial.params]
    if method == BATCH_SIZE:
        return batch_size.following([_size(trial) for trial in ended], values.low, values.high, values.step)
    return loader_workers.following([_workers(trial) for trial in ended], values.low, values.high)


def _size(trial: FrozenTrial) -> batch_size.Trial:
    (size,) = trial.params.values()
    if trial.state != TrialState.COMPLETE:
        return batch_size.Trial(size=int(size), error="failed")
    measured = trial.user_attrs.get(_MEASURED) or {}
    memory, limit = measured.get(batch_size.MEMORY), measured.get(batch_size.LIMIT)
    return batch_size.Trial(size=int(size), rate=trial.value, memory=memory, limit=limit)


def _workers(trial: FrozenTrial) -> loader_workers.Trial:
    (workers,) = trial.params.values()
    if trial.state != TrialState.COMPLETE:
        return loader_workers.Trial(workers=int(workers), error="failed")
    return loader_workers.trial_of(int(workers), trial.user_attrs.get(_MEASURED) or {})
