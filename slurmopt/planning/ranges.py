"""An interval of a number that is not known exactly."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

STATED = 0.90
"""The share of cases in which the true value is to be inside."""
_HALF_WIDTH = NormalDist().inv_cdf((1 + STATED) / 2)


@dataclass(frozen=True)
class Range:
    """The ends of a 90 % interval, both in the unit of the value."""

    low: float
    high: float

    def __add__(self, other: Range | float) -> Range:
        """The sum, both ends at once: the parts are wrong in the same direction."""
        other = exactly(other)
        return Range(self.low + other.low, self.high + other.high)

    __radd__ = __add__

    def __mul__(self, factor: float) -> Range:
        return Range(self.low * factor, self.high * factor)

    __rmul__ = __mul__

    @property
    def middle(self) -> float:
        """The median, of a log-normal distribution with these 5 % and 95 % quantiles."""
        return math.sqrt(self.low * self.high) if self.low > 0 else (self.low + self.high) / 2

    def quantile(self, share: float) -> float:
        """The value below which that share of cases is, for the same distribution."""
        if self.low <= 0 or self.high <= self.low:
            return self.low + share * (self.high - self.low)
        return self.middle * math.exp(NormalDist().inv_cdf(share) * self._spread)

    @property
    def _spread(self) -> float:
        return math.log(self.high / self.low) / (2 * _HALF_WIDTH)

    def probability_below(self, limit: float) -> float:
        """The probability that the value is at most `limit`, for the same distribution."""
        if limit <= 0:
            return 0.0
        if self.low <= 0 or self.high <= self.low * (1 + 1e-12):
            return 1.0 if self.high <= limit else 0.0
        return NormalDist().cdf((math.log(limit) - math.log(self.middle)) / self._spread)


def exactly(value: Range | float) -> Range:
    """A number that is known, as a range."""
    return value if isinstance(value, Range) else Range(value, value)


def largest(ranges: Iterable[Range]) -> Range:
    """The maximum of several values: the largest low end and the largest high end."""
    found = list(ranges)
    return Range(max(each.low for each in found), max(each.high for each in found))
