"""Computes how much of a metric's variance each axis of a sweep explains."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from statistics import fmean, median
from typing import Any

_MOST_LEVELS = 12
"""An axis with more distinct numbers than this is divided into bins."""
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
    """The effect of one axis: the metric at each of its values."""

    axis: str
    share: float
    """The share of the metric's variance that the axis explains: 0 to 1."""
    levels: list[Level]


@dataclass(frozen=True)
class AxisValues:
    """The values that the points have on one axis."""

    axis: str
    values: Sequence[Any]
    places: Sequence[int]
    """Each point's index into `values`; -1 where its value is not known."""


def effects(axes: Iterable[AxisValues], metrics: Sequence[float], maximize: bool = False) -> list[Effect]:
    """The effects of the axes, the strongest first; without axes of which only one value was tried.

    `metrics`: a finite number for each point. The share is Kelley's unbiased correlation ratio ε² = 1 - (SS_within / (n
    - k)) / (SS_total / (n - 1)), with n points and k values of the axis, and 0 where that is negative (T. L. Kelley, An
    Unbiased Correlation Ratio Measure, PNAS 21(9), 1935, pp. 554-559). Unlike η² it does not grow with the number of
    values: an axis without effect, such as a seed, has about 0. Each axis is judged alone, so effects that need a
    combination of axes are not seen."""
    return strongest_first(effect(axis, metrics, maximize) for axis in axes)


def strongest_first(unsorted: Iterable[Effect | None]) -> list[Effect]:
    """Sorts effects as `effects` does, without None."""
    return sorted(filter(None, unsorted), key=lambda effect: -effect.share)


@dataclass
class _Group:
    """Points with one value, or with one of a bin of values."""

    value: Any
    last: Any
    metrics: array[float]


def effect(axis_values: AxisValues, metrics: Sequence[float], maximize: bool) -> Effect | None:
    """The effect of one axis (see `effects`); None where only one value was tried."""
    groups = _grouped(axis_values, metrics)
    if len(groups) < 2:
        return None
    levels = [_level(group, maximize) for group in groups]
    return Effect(axis_values.axis, explained([group.metrics for group in groups]), levels)


def _level(group: _Group, maximize: bool) -> Level:
    best = max(group.metrics) if maximize else min(group.metrics)
    return Level(group.value, group.last, len(group.metrics), _mean(group.metrics), median(group.metrics), best)


def explained(groups: Sequence[Sequence[float]]) -> float:
    """ε² of these groups; 0 where each value was tried once, because chance and effect cannot be told apart then."""
    try:
        return _explained(groups)
    except OverflowError:  # numbers near the largest that there are; the share does not depend on their unit
        unit = max(map(abs, chain.from_iterable(groups)))
        return _explained([[value / unit for value in group] for group in groups])


def _explained(groups: Sequence[Sequence[float]]) -> float:
    count = sum(map(len, groups))
    if count <= len(groups):
        return 0.0
    total = _squares(groups)
    within = math.fsum(_squares([group]) for group in groups)
    if total <= 0:
        return 0.0
    return max(0.0, 1 - (within / (count - len(groups))) / (total / (count - 1)))


def _mean(values: Sequence[float]) -> float:
    try:
        return fmean(values)
    except OverflowError:  # of the sum
        return math.fsum(value / len(values) for value in values)


def _squares(groups: Sequence[Sequence[float]]) -> float:
    """The sum of the squared distances from the mean of all."""
    mean = fmean(chain.from_iterable(groups))
    return math.fsum((value - mean) ** 2 for group in groups for value in group)


def _grouped(axis_values: AxisValues, metrics: Sequence[float]) -> list[_Group]:
    """Groups the points by value. Many different numbers are divided into bins of about equal size, each value in one
    bin."""
    values = axis_values.values
    counts = array("q", bytes(8 * len(values)))
    for place in axis_values.places:
        if place >= 0:
            counts[place] += 1
    used = [place for place, count in enumerate(counts) if count]
    if all(is_number(values[place]) for place in used):
        used.sort(key=values.__getitem__)
        starts = _starts(values, used)
        if len(starts) > _MOST_LEVELS:
            starts = _binned(starts, used, counts)
    else:
        places_by_text: dict[str, list[int]] = {}
        for place in used:
            places_by_text.setdefault(shown(values[place]), []).append(place)
        used = list(chain.from_iterable(places_by_text.values()))
        starts = _starts(values, used)
    return _filled(axis_values, metrics, used, starts)


def _starts(values: Sequence[Any], used: list[int]) -> list[int]:
    """The indices in `used` at which another value begins; values that look alike are adjacent there."""
    starts, previous = [], None
    for at, place in enumerate(used):
        if (current := shown(values[place])) != previous:
            starts.append(at)
            previous = current
    return starts


def _binned(starts: list[int], used: list[int], counts: array[int]) -> list[int]:
    """Those of `starts` at which a bin begins."""
    share, count_before, bins = sum(counts) / _BINS, 0, list[int]()
    for start, stop in pairwise([*starts, len(used)]):
        if count_before >= share * len(bins):
            bins.append(start)
        count_before += sum(counts[place] for place in used[start:stop])
    return bins


def _filled(axis_values: AxisValues, metrics: Sequence[float], used: list[int], starts: list[int]) -> list[_Group]:
    values = axis_values.values
    groups: list[_Group] = []
    group_of = array("q", bytes(8 * len(values)))
    for start, stop in pairwise([*starts, len(used)]):
        for place in used[start:stop]:
            group_of[place] = len(groups)
        groups.append(_Group(values[used[start]], values[used[stop - 1]], array("d")))
    adders = [group.metrics.append for group in groups]
    for place, metric in zip(axis_values.places, metrics, strict=True):
        if place >= 0:
            adders[group_of[place]](metric)
    return groups


def is_number(value: Any) -> bool:
    """Whether `value` is a finite number and not a bool."""
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int that no float can hold
        return False


def shown(value: Any) -> str:
    """A value of an axis, or a metric, for people."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
