"""How much each axis of a sweep matters for a metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

_MOST_LEVELS = 12
"""Above so many distinct numbers an axis is looked at in bins."""
_BINS = 5


@dataclass(frozen=True)
class Level:
    """One value of an axis, or a bin of values."""

    value: Any
    """Of a bin its first value."""
    last: Any
    """Of a bin its last value; else `value`."""
    count: int
    mean: float
    median: float
    best: float

    @property
    def label(self) -> str:
        """`0.1`, or `0.1 … 0.25`."""
        first, last = shown(self.value), shown(self.last)
        return first if first == last else f"{first} … {last}"


@dataclass(frozen=True)
class Effect:
    """What the metric is at each value of one axis."""

    axis: str
    share: float
    """Of the metric's variance, how much the axis explains: 0 to 1."""
    levels: list[Level]


def effects(rows: Sequence[tuple[dict[str, Any], float]], axes: Sequence[str], maximize: bool = False) -> list[Effect]:
    """The axes, the one that explains most first; without those of which only one value was tried.

    `rows`: the values of a point and its metric, a finite number. The share is Kelley's unbiased correlation ratio
    ε² = 1 - (SS_within / (n - k)) / (SS_total / (n - 1)), with n points and k values of the axis, and 0 where that is
    negative (T. L. Kelley, An Unbiased Correlation Ratio Measure, PNAS 21(9), 1935, pp. 554-559). Unlike η² it does
    not grow with the number of values: an axis that does nothing, such as a seed, has about 0. Each axis is looked at
    alone; what only a combination of two does, it does not see.
    """
    found = (_effect(rows, axis, maximize) for axis in axes)
    return sorted((effect for effect in found if effect is not None), key=lambda effect: -effect.share)


def _effect(rows: Sequence[tuple[dict[str, Any], float]], axis: str, maximize: bool) -> Effect | None:
    pairs = [(values[axis], metric) for values, metric in rows if axis in values]
    groups = _grouped(pairs)
    if len(groups) < 2:
        return None
    levels = [_level(group, maximize) for group in groups]
    return Effect(axis, explained([[metric for _, metric in group] for group in groups]), levels)


def _level(group: list[tuple[Any, float]], maximize: bool) -> Level:
    metrics = [metric for _, metric in group]
    best = max(metrics) if maximize else min(metrics)
    return Level(group[0][0], group[-1][0], len(group), fmean(metrics), median(metrics), best)


def explained(groups: Sequence[Sequence[float]]) -> float:
    """ε² of these groups; 0 where each value was tried once, for then nothing tells chance from effect."""
    count = sum(map(len, groups))
    if count <= len(groups):
        return 0.0
    total = _squares([value for group in groups for value in group])
    within = math.fsum(map(_squares, groups))
    if total <= 0:
        return 0.0
    return max(0.0, 1 - (within / (count - len(groups))) / (total / (count - 1)))


def _squares(values: Sequence[float]) -> float:
    """The sum of the squared distances from the mean."""
    mean = fmean(values)
    return math.fsum((value - mean) ** 2 for value in values)


def _grouped(pairs: list[tuple[Any, float]]) -> list[list[tuple[Any, float]]]:
    """By value; of many different numbers in bins of as many points each."""
    by_value: dict[str, list[tuple[Any, float]]] = {}
    for pair in pairs:
        by_value.setdefault(shown(pair[0]), []).append(pair)
    numeric = all(is_number(value) for value, _ in pairs)
    if numeric and len(by_value) > _MOST_LEVELS:
        return _binned(list(by_value.values()))
    groups = list(by_value.values())
    return sorted(groups, key=lambda group: group[0][0]) if numeric else groups


def _binned(groups: list[list[tuple[Any, float]]]) -> list[list[tuple[Any, float]]]:
    """Neighbouring values together, about as many points in each bin; a value stays in one."""
    ordered = sorted(groups, key=lambda group: group[0][0])
    share = sum(map(len, ordered)) / _BINS
    bins: list[list[tuple[Any, float]]] = []
    before = 0
    for group in ordered:
        if not bins or before >= share * len(bins):
            bins.append([])
        bins[-1] += group
        before += len(group)
    return bins


def is_number(value: Any) -> bool:
    """Whether `value` is a finite number, and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def shown(value: Any) -> str:
    """A value of an axis, or a metric, for people."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
