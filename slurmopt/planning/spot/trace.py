"""How many spot instances could be had at each time, and the times in which a whole gang could run."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Trace:
    """A step function of time. Times are seconds from its beginning."""

    times: tuple[float, ...]
    """When each count begins to hold, ascending; the first is 0."""
    counts: tuple[int, ...]
    """Instances that can be had."""
    length: float
    """Until when the last count holds."""


@dataclass(frozen=True)
class Uptime:
    """A time in which enough instances can be had."""

    start: float
    seconds: float
    """Infinite where there are always enough."""
    left: int
    """Instances that can still be had when it ends: fewer than the gang needs."""


@dataclass(frozen=True)
class Uptimes:
    """Those of a gang, in the order of time. After its end the trace begins again, so that the last one may reach into
    the next round."""

    each: tuple[Uptime, ...]
    length: float
    """Of a round: of the trace."""
    nodes: int

    @property
    def always(self) -> bool:
        """Whether there are always enough."""
        return len(self.each) == 1 and math.isinf(self.each[0].seconds)

    @property
    def available(self) -> float:
        """The share of the time in which there are enough."""
        return 1.0 if self.always else sum(one.seconds for one in self.each) / self.length

    @property
    def mean(self) -> float:
        """Mean seconds; the maximum-likelihood estimate of M for an exponential life."""
        return fmean(one.seconds for one in self.each)

    @property
    def median(self) -> float:
        return median(one.seconds for one in self.each)

    @property
    def mean_wait(self) -> float:
        """Mean seconds from the end of one to the next."""
        return 0.0 if self.always else self.length * (1 - self.available) / len(self.each)

    def at(self, time: float) -> tuple[int, int]:
        """The first one that ends after `time`, 0 up to the length: its index, and in which round it began (-1: it
        began at the end of the round before)."""
        last = self.each[-1]
        if last.start + last.seconds - self.length > time:
            return len(self.each) - 1, -1
        index = bisect_right([one.start for one in self.each], time) - 1
        if index >= 0 and self.each[index].start + self.each[index].seconds > time:
            return index, 0
        return index + 1, 0


def uptimes(trace: Trace, nodes: int) -> Uptimes:
    """When `nodes` instances or more can be had: a gang runs with all of them or not at all."""
    ends = (*trace.times[1:], trace.length)
    found: list[Uptime] = []
    start: float | None = None
    for begin, end, count in zip(trace.times, ends, trace.counts, strict=True):
        if count >= nodes:
            start = begin if start is None else start
            still_up = end
        elif start is not None:
            found.append(Uptime(start, still_up - start, count))
            start = None
    if start is not None:
        found = _round(found, start, trace, nodes)
    return Uptimes(tuple(found), trace.length, nodes)


def _round(found: list[Uptime], start: float, trace: Trace, nodes: int) -> list[Uptime]:
    """With the one that lasts until the end, and goes on where the trace begins again."""
    if not found and start == 0:
        return [Uptime(0.0, math.inf, nodes)]
    first = found[0] if found and found[0].start == 0 else None
    if first is None:
        return [*found, Uptime(start, trace.length - start, trace.counts[0])]
    return [*found[1:], Uptime(start, trace.length - start + first.seconds, first.left)]


def starting_points(length: float, count: int) -> Sequence[float]:
    """Times spread over a round, always the same: multiples of the golden ratio, whose distances are nearly equal and
    in step with no period of the trace."""
    return [(each + 0.5) * _GOLDEN % 1.0 * length for each in range(count)]
