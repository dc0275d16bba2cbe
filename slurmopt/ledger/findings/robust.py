"""Robust statistics: one wild value does not change what they say."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

MAD_TO_SIGMA = 1.4826
"""For normal noise the standard deviation is this multiple of the median absolute deviation."""


def spread(values: Sequence[float]) -> float:
    """The standard deviation by the median absolute deviation; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    middle = median(values)
    return MAD_TO_SIGMA * median(abs(value - middle) for value in values)


class Others:
    """Median and spread of all values but one, for each of them. The time grows with the number of values (their sort
    apart), where computing both anew for each value would make it grow with the square."""

    def __init__(self, values: Iterable[float]) -> None:
        self._values = sorted(values)
        self._deviations: dict[float, list[float]] = {}
        """Median of the others → the deviations of all values from it: there are three such medians at most."""

    def __len__(self) -> int:
        """How many others each value has."""
        return len(self._values) - 1

    def median(self, value: float) -> float:
        """The median of all values but one that is `value`. At least two values."""
        return _median_without(self._values, value)

    def spread(self, value: float) -> float:
        """`spread` of all values but one that is `value`."""
        if len(self) < 2:
            return 0.0
        middle = self.median(value)
        if middle not in self._deviations:
            self._deviations[middle] = sorted(abs(other - middle) for other in self._values)
        return MAD_TO_SIGMA * _median_without(self._deviations[middle], abs(value - middle))


def _median_without(ordered: Sequence[float], value: float) -> float:
    """The median of sorted values without one that is `value`."""
    left, count = bisect_left(ordered, value), len(ordered) - 1
    low, high = (count - 1) // 2, count // 2
    lower, upper = ordered[low + (low >= left)], ordered[high + (high >= left)]
    return lower if low == high else (lower + upper) / 2


def slope(points: Sequence[tuple[float, float]], z: float = 2.58) -> tuple[float, float, float]:
    """The slope of a line through points (x, y), and the bounds of its confidence interval (`z` 2.58: 99 %).

    The median of the slopes of all pairs of points (Theil, 1950); the interval is that of P. K. Sen, "Estimates of the
    regression coefficient based on Kendall's tau", JASA 63 (1968), 1379-1389. At least two different x. The time grows
    with the square of the number of points.
    """
    slopes = sorted(
        (later_y - y) / (later_x - x)
        for at, (x, y) in enumerate(points)
        for later_x, later_y in points[at + 1 :]
        if later_x != x
    )
    count = len(points)
    half = z * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = max(0, round((len(slopes) - half) / 2))
    high = min(len(slopes) - 1, round((len(slopes) + half) / 2))
    return median(slopes), slopes[low], slopes[high]


def parts(values: Sequence[tuple[float, float]], count: int) -> list[float]:
    """The medians of `count` consecutive parts of a curve, equal in points. At least `count` points."""
    bounds = [round(at * len(values) / count) for at in range(count + 1)]
    return [median(y for _, y in values[low:high]) for low, high in pairwise(bounds)]


def thin(points: Sequence[tuple[float, float]], most: int = 64) -> list[tuple[float, float]]:
    """At most `most` points: the medians of neighbours. Neighbours in time are alike, and would count as evidence of
    their own."""
    size = -(-len(points) // most) or 1
    blocks = [points[at : at + size] for at in range(0, len(points), size)]
    return [(median(x for x, _ in block), median(y for _, y in block)) for block in blocks]
