"""How much each axis of a sweep matters for a metric."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
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


@dataclass(frozen=True)
class Tried:
    """Which values of an axis the points have."""

    axis: str
    values: Sequence[Any]
    places: Sequence[int]
    """Where in `values` each point's stands; -1 where nobody knows it."""


def effects(tried: Iterable[Tried], metrics: Sequence[float], maximize: bool = False) -> list[Effect]:
    """The axes, the one that explains most first; without those of which only one value was tried.

    `metrics`: of each point a finite number. The share is Kelley's unbiased correlation ratio
    ε² = 1 - (SS_within / (n - k)) / (SS_total / (n - 1)), with n points and k values of the axis, and 0 where that is
    negative (T. L. Kelley, An Unbiased Correlation Ratio Measure, PNAS 21(9), 1935, pp. 554-559). Unlike η² it does
    not grow with the number of values: an axis that does nothing, such as a seed, has about 0. Each axis is looked at
    alone; what only a combination of two does, it does not see.
    """
    return strongest_first(effect(one, metrics, maximize) for one in tried)


def strongest_first(found: Iterable[Effect | None]) -> list[Effect]:
    """The effects in the order of `effects`."""
    return sorted(filter(None, found), key=lambda effect: -effect.share)


@dataclass
class _Group:
    """Points with one value, or with one of a bin of values."""

    value: Any
    last: Any
    metrics: array[float]


def effect(tried: Tried, metrics: Sequence[float], maximize: bool) -> Effect | None:
    """Of one axis, as `effects` tells it; None where only one value was tried."""
    groups = _grouped(tried, metrics)
    if len(groups) < 2:
        return None
    levels = [_level(group, maximize) for group in groups]
    return Effect(tried.axis, explained([group.metrics for group in groups]), levels)


def _level(group: _Group, maximize: bool) -> Level:
    best = max(group.metrics) if maximize else min(group.metrics)
    return Level(group.value, group.last, len(group.metrics), fmean(group.metrics), median(group.metrics), best)


def explained(groups: Sequence[Sequence[float]]) -> float:
    """ε² of these groups; 0 where each value was tried once, for then nothing tells chance from effect."""
    count = sum(map(len, groups))
    if count <= len(groups):
        return 0.0
    total = _squares(groups)
    within = math.fsum(_squares([group]) for group in groups)
    if total <= 0:
        return 0.0
    return max(0.0, 1 - (within / (count - len(groups))) / (total / (count - 1)))


def _squares(groups: Sequence[Sequence[float]]) -> float:
    """The sum of the squared distances from the mean of all."""
    mean = fmean(chain.from_iterable(groups))
    return math.fsum((value - mean) ** 2 for group in groups for value in group)


def _grouped(tried: Tried, metrics: Sequence[float]) -> list[_Group]:
    """By value; of many different numbers in bins of about as many points each, in which a value stays in one."""
    values = tried.values
    counts = array("q", bytes(8 * len(values)))
    for place in tried.places:
        if place >= 0:
            counts[place] += 1
    used = [place for place, count in enumerate(counts) if count]
    if all(is_number(values[place]) for place in used):
        used.sort(key=values.__getitem__)
        starts = _starts(values, used)
        if len(starts) > _MOST_LEVELS:
            starts = _binned(starts, used, counts)
    else:
        words: dict[str, list[int]] = {}
        for place in used:
            words.setdefault(shown(values[place]), []).append(place)
        used = list(chain.from_iterable(words.values()))
        starts = _starts(values, used)
    return _filled(tried, metrics, used, starts)


def _starts(values: Sequence[Any], used: list[int]) -> list[int]:
    """Where in `used`, in which what is shown alike stands together, another value begins."""
    found, before = [], None
    for at, place in enumerate(used):
        if (now := shown(values[place])) != before:
            found.append(at)
            before = now
    return found


def _binned(starts: list[int], used: list[int], counts: array[int]) -> list[int]:
    """Those of `starts` with which a bin begins."""
    share, before, bins = sum(counts) / _BINS, 0, list[int]()
    for start, stop in pairwise([*starts, len(used)]):
        if before >= share * len(bins):
            bins.append(start)
        before += sum(counts[place] for place in used[start:stop])
    return bins


def _filled(tried: Tried, metrics: Sequence[float], used: list[int], starts: list[int]) -> list[_Group]:
    values = tried.values
    groups: list[_Group] = []
    group_of = array("q", bytes(8 * len(values)))
    for start, stop in pairwise([*starts, len(used)]):
        for place in used[start:stop]:
            group_of[place] = len(groups)
        groups.append(_Group(values[used[start]], values[used[stop - 1]], array("d")))
    adders = [group.metrics.append for group in groups]
    for place, metric in zip(tried.places, metrics, strict=True):
        if place >= 0:
            adders[group_of[place]](metric)
    return groups


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
