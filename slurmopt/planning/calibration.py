"""Learns from earlier runs how far the formulas are off, and how sure that makes them.

The error of a formula is a ratio, measured by estimated. Its logarithms over earlier runs give an interval for the next
one: a prediction interval of a normal distribution while runs are few, order statistics (split conformal prediction,
which assumes no distribution) once there are enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from slurmopt.planning.ranges import STATED, Range

_T95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746,
        1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697)  # fmt: skip
"""Student's t, 95 %, by degrees of freedom from 1."""
ENOUGH = 39
"""From so many runs on, the second least and the second largest ratio are the ends of a 90 % interval."""
_MOST = 100.0
"""A factor beyond this is no error of a formula, but one of a record."""
_ROUNDING = 1e-9
_LEAST_SPREAD = 0.01
"""Relative; runs of one config differ by as much."""


def interval(ratios: Sequence[float]) -> Range | None:
    """The 90 % interval for the next ratio; None for fewer than two ratios that can be errors of a formula."""
    logs = sorted(math.log(ratio) for ratio in ratios if 1 / _MOST < ratio < _MOST)
    count = len(logs)
    if count < 2:
        return None
    if count >= ENOUGH:
        at = math.floor((1 - STATED) / 2 * (count + 1) + _ROUNDING) - 1
        return Range(math.exp(logs[at]), math.exp(logs[-1 - at]))
    middle, spread = fmean(logs), max(stdev(logs), _LEAST_SPREAD)
    half = _T95[min(count - 1, len(_T95)) - 1] * spread * math.sqrt(1 + 1 / count)
    return Range(math.exp(middle - half), math.exp(middle + half))
