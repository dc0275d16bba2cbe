"""Describes a search and its space. The object that suggests values is passed in, so this module does not need
Optuna."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from slurmopt.config.sweep import BATCH_SIZE, PRUNING, TUNING
from slurmopt.errors import ConfigError
from slurmopt.grid.axes import Axis, Interval, Steps


class Suggests(Protocol):
    """The methods of Optuna's Trial that are used."""

    def suggest_categorical(self, name: str, choices: Any) -> Any: ...

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int: ...

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search for the best point, as stored in the study file."""

    method: str
    """A value of `sweep.search`."""
    trials: int
    metric: str | None = None
    """None: the number that the function returns."""
    command: bool = False
    """Whether the task is a command, which returns an exit status instead of a metric."""
    direction: str = "minimize"
    seed: int | None = None
    steps: int = 20
    """The steps of a trial that measures them."""

    @property
    def prunes(self) -> bool:
        """Whether trials may be pruned."""
        return self.method in PRUNING

    @property
    def tunes(self) -> bool:
        """Whether each trial follows from those before, until the question is answered."""
        return self.method in TUNING

    def seed_of(self, trial: int) -> int | None:
        """The random seed of a trial: each has its own, so that no two workers propose the same values."""
        return None if self.seed is None else random.Random(f"{self.seed}/{trial}").getrandbits(32)  # noqa: S311

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Search:
        """From what `as_json` returned. TypeError for anything else."""
        return cls(**value)


def check_tuned_axes(method: str, axes: Sequence[Axis]) -> None:
    """Raises ConfigError unless there is one axis of batch sizes; or one of numbers of workers, and none or one of
    prefetch factors and of pinned memory."""
    own = [axis for axis in axes if method == BATCH_SIZE or not (is_prefetch(axis) or is_pinned(axis))]
    values = own[0].values if len(own) == 1 else None
    least, example = (1, "batch_size=range(8,1025,8)") if method == BATCH_SIZE else (0, "num_workers=range(0,17)")
    if isinstance(values, Interval) and isinstance(values.start, int) and isinstance(values.end, int):
        is_valid = values.start >= least
    else:
        is_valid = isinstance(values, range) and values.step > 0 and values.start >= least
    if not is_valid:
        raise ConfigError(
            f"{method} needs one axis of whole numbers; valid: {example}",
            own[-1].keys[0] if own else "sweep.search",
        )
    for is_such in (is_prefetch, is_pinned):
        if len(such := [axis for axis in axes if method != BATCH_SIZE and is_such(axis)]) > 1:
            raise ConfigError(f"{such[1].keys[0]} is the second of its kind; valid: one", such[0].keys[0])


def is_prefetch(axis: Axis) -> bool:
    """Whether its values are prefetch factors: null, which is torch's own and goes with 0 workers, and numbers."""
    values = axis.values if isinstance(axis.values, (list, tuple)) else ()
    numbers = [value for value in values if type(value) is int and value > 0]
    return None in values and len(numbers) == len(values) - 1


def is_pinned(axis: Axis) -> bool:
    """Whether its values are true and false."""
    values = axis.values if isinstance(axis.values, (list, tuple)) else ()
    return sorted(map(str, values)) == ["False", "True"] and all(isinstance(value, bool) for value in values)


def check(axes: Sequence[Axis]) -> None:
    """Raises ConfigError for axes that cannot be searched. Each has one key."""
    if not axes:
        raise ConfigError(
            "has nothing to choose from; give axes, such as 'lr=tag(log,interval(1e-5,1e-1))' model=small,large",
            "sweep.search",
        )
    for axis in axes:
        if isinstance(values := axis.values, Interval):
            _check_interval(values, axis)
        elif not len(axis):
            raise ConfigError("has no values to choose from", axis.keys[0])
        elif _is_log(axis) and not (isinstance(values, range) and abs(values.step) == 1 and min(values) > 0):
            raise ConfigError(
                "tag(log) needs numbers above 0 without a step; valid: tag(log,interval(1e-5,1e-1)), "
                "tag(log,range(1,100))",
                axis.keys[0],
            )


def _check_interval(interval: Interval, axis: Axis) -> None:
    low, high = interval.start, interval.end
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        raise ConfigError(f"interval({low},{high}) is none; valid: finite, the lower end first", axis.keys[0])
    if _is_log(axis) and low <= 0:
        raise ConfigError(f"{low} has no logarithm; valid: an interval that starts above 0", axis.keys[0])


def suggest(axes: Sequence[Axis], trial: Suggests) -> dict[str, Any]:
    """The values of a trial by key, suggested by `trial`, which suggests the same values again if asked again."""
    return {axis.keys[0]: _suggest(axis, trial) for axis in axes}


def _suggest(axis: Axis, trial: Suggests) -> Any:
    name, values, log = axis.keys[0], axis.values, _is_log(axis)
    if isinstance(values, Interval):
        if isinstance(values.start, int) and isinstance(values.end, int):
            return trial.suggest_int(name, values.start, values.end, log=log)
        return trial.suggest_float(name, values.start, values.end, log=log)
    if isinstance(values, range):
        low, high = sorted((values[0], values[-1]))
        return trial.suggest_int(name, low, high, step=abs(values.step), log=log)
    if isinstance(values, Steps):
        low, high = sorted((values[0], values[-1]))
        near = trial.suggest_float(name, low, high, step=abs(float(values.step)))
        return min(values, key=lambda value: abs(value - near))  # exactly the float that a grid has there
    choices = _words(values)
    return values[choices.index(trial.suggest_categorical(name, choices))]


def _is_log(axis: Axis) -> bool:
    return "log" in axis.columns[0].tags


def _words(values: Sequence[Any]) -> list[Any]:
    """The values as a study can store them: without lists, and without two values that Python compares as equal, such
    as 1 and True."""
    plain = all(value is None or isinstance(value, (str, int, float)) for value in values)
    if plain and len(set(values)) == len(values):
        return list(values)
    return [json.dumps(value, default=str) for value in values]


def following(step: int) -> int:
    """The next step after `step` whose metric is reported to the study: each up to 20, then in steps of 5 %.

    It depends on the step and not on time, because pruners compare trials at the same step; and there are few, because
    all workers share one file.
    """
    return step + max(1, math.ceil(step / 20))
