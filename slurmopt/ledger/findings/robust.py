"""Robust statistics: one wild value does not change what they say."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
