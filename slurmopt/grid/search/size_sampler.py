"""The sampler of `sweep.search=batch_size`: each trial's size follows from the trials before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from slurmopt.grid.search.batch_size import LIMIT, MEMORY, Trial, following

_MEASURED = "measured"
"""The attribute of a trial with its metrics."""
_ENDED = (TrialState.COMPLETE, TrialState.FAIL)


class BatchSizes(optuna.samplers.BaseSampler):
    """Suggests the size that `slurmopt.grid.search.batch_size` wants to see next."""

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
        return _following(study.get_trials(deepcopy=False), param_distribution) or param_distribution.low


def is_answered(trials: Sequence[FrozenTrial]) -> bool:
    """Whether no further size would tell more. A trial that is under way may."""
    trials = [trial for trial in trials if trial.params]
    sizes = next((each for trial in trials for each in trial.distributions.values()), None)
    if not isinstance(sizes, IntDistribution) or any(trial.state == TrialState.RUNNING for trial in trials):
        return False
    return _following(trials, sizes) is None


def _following(trials: Sequence[FrozenTrial], sizes: IntDistribution) -> int | None:
    tried = [_tried(trial) for trial in trials if trial.state in _ENDED and trial.params]
    return following(tried, sizes.low, sizes.high, sizes.step)


def _tried(trial: FrozenTrial) -> Trial:
    (size,) = trial.params.values()
    if trial.state != TrialState.COMPLETE:
        return Trial(size=int(size), error="failed")
    measured = trial.user_attrs.get(_MEASURED) or {}
    return Trial(size=int(size), rate=trial.value, memory=measured.get(MEMORY), limit=measured.get(LIMIT))
