"""The sampler of `slurmopt tune`: each trial's value follows from the trials before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from slurmopt.config.sweep import BATCH_SIZE
from slurmopt.grid.search import batch_size, loader_settings
from slurmopt.grid.search.loader_settings import Setting, Space
from slurmopt.grid.search.measured import measured
from slurmopt.restart import causes

_MEASURED, _CAUSE = "measured", "cause"
"""The attributes of a trial with its metrics, and with why it failed."""
_ENDED = (TrialState.COMPLETE, TrialState.FAIL)


class Following(optuna.samplers.BaseSampler):
    """Suggests the values that the search wants to see next."""

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
        trials = study.get_trials(deepcopy=False)
        if self._method == BATCH_SIZE:
            assert isinstance(param_distribution, IntDistribution)
            size = _following_size(trials, param_distribution)
            return param_distribution.low if size is None else size
        # The first axis is sampled first: what the others can be is known then.
        axes = {**_axes(trials), **trial.distributions, param_name: param_distribution}
        setting = _following_setting(trials, axes)
        return getattr(setting or Setting(workers=_space(axes).low), _role(param_distribution))


def is_answered(method: str, trials: Sequence[FrozenTrial]) -> bool:
    """Whether no further value would tell more. A trial that is under way may."""
    trials = [trial for trial in trials if trial.params]
    axes = _axes(trials)
    if not axes or any(trial.state == TrialState.RUNNING for trial in trials):
        return False
    if method == BATCH_SIZE:
        (sizes,) = axes.values()
        return isinstance(sizes, IntDistribution) and _following_size(trials, sizes) is None
    return _following_setting(trials, axes) is None


def _axes(trials: Sequence[FrozenTrial]) -> Mapping[str, BaseDistribution]:
    """Those of the trial that has most of them: one that was just asked for has only the first."""
    return max((trial.distributions for trial in trials), key=len, default={})


def _following_size(trials: Sequence[FrozenTrial], sizes: IntDistribution) -> int | None:
    return batch_size.following([_size(trial) for trial in _ended(trials)], sizes.low, sizes.high, sizes.step)


def _following_setting(trials: Sequence[FrozenTrial], axes: Mapping[str, BaseDistribution]) -> Setting | None:
    return loader_settings.following([_loader(trial) for trial in _ended(trials)], _space(axes))


def _ended(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    return [trial for trial in trials if trial.state in _ENDED and trial.params]


def _size(trial: FrozenTrial) -> batch_size.Trial:
    (size,) = trial.params.values()
    metrics = measured(trial.user_attrs.get(_MEASURED) or {})
    if trial.state != TrialState.COMPLETE or not metrics.get(batch_size.RATE):
        return batch_size.Trial(
            size=int(size), error="failed", too_large=trial.user_attrs.get(_CAUSE) in causes.OF_MEMORY
        )
    memory, limit = metrics.get(batch_size.MEMORY), metrics.get(batch_size.LIMIT)
    return batch_size.Trial(size=int(size), rate=metrics[batch_size.RATE], memory=memory, limit=limit)


def _loader(trial: FrozenTrial) -> loader_settings.Trial:
    setting = _setting(trial)
    metrics = measured(trial.user_attrs.get(_MEASURED) or {})
    if trial.state != TrialState.COMPLETE or not metrics.get(loader_settings.RATE):
        return loader_settings.Trial(**asdict(setting), error="failed")
    return loader_settings.trial_of(setting, metrics)


def _setting(trial: FrozenTrial) -> Setting:
    values = {_role(axis): trial.params[name] for name, axis in trial.distributions.items()}
    return Setting(**values)


def _role(axis: BaseDistribution) -> str:
    """Which field of a Setting the axis is."""
    if isinstance(axis, IntDistribution):
        return "workers"
    assert isinstance(axis, CategoricalDistribution)
    return "pinned" if all(isinstance(choice, bool) for choice in axis.choices) else "prefetch"


def _space(axes: Mapping[str, BaseDistribution]) -> Space:
    by_role = {_role(axis): axis for axis in axes.values()}
    workers, prefetch = by_role["workers"], by_role.get("prefetch")
    assert isinstance(workers, IntDistribution)
    choices = prefetch.choices if isinstance(prefetch, CategoricalDistribution) else ()
    factors = tuple(sorted(choice for choice in choices if isinstance(choice, int)))
    pins = by_role.get("pinned")
    pinned = bool(pins.choices[0]) if isinstance(pins, CategoricalDistribution) else True
    return Space(low=workers.low, high=workers.high, prefetch=factors, pinned=pinned, pins=pins is not None)
