"""How a training scales over nodes: measures of it, and a fit to a few probe runs that predicts other node counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slurmopt.errors import InputError
from slurmopt.planning.ranges import Range

FARTHEST = 4.0
"""A prediction for more than so many times the largest probe is marked."""
_SHORTEST, _LONGEST = 1e-9, 1e9
"""Seconds; what is beyond is a clock that was set, and no time of a step."""
LEAST_ERROR = 0.05
"""Relative half-width of an interval, at least: probes of the same size differ by as much between nodes and days."""


def strong_efficiency(one: float, n: float, of_n: float) -> float:
    """T₁ / (n·Tₙ) at one global batch; between 0 and about 1, and never negative."""
    return one / (n * of_n)


def weak_efficiency(one: float, of_n: float) -> float:
    """T₁ / Tₙ at one batch per GPU."""
    return one / of_n


@dataclass(frozen=True)
class Probe:
    """A measured node count."""

    nodes: int
    seconds: float
    """Of a step."""


@dataclass(frozen=True)
class Prediction:
    """The time of a step on a node count that was not measured."""

    nodes: int
    seconds: Range
    times_farther: float
    """How many times the largest probe that is; below 1 where it is between probes or below them."""

    @property
    def is_far(self) -> bool:
        return self.times_farther > FARTHEST


@dataclass(frozen=True)
class Fit:
    """T(n) = serial + parallel / n, in seconds, for one global batch; parallel is constant per node in weak scaling."""

    serial: float
    parallel: float
    weak: bool
    probes: tuple[Probe, ...]
    error: float
    """Relative, of the worst probe."""

    @property
    def serial_fraction(self) -> float:
        """f of Amdahl's law, of the step on one node."""
        whole = self.serial + self.parallel
        return self.serial / whole if whole else 0.0

    def predicted(self, nodes: int) -> Prediction:
        """The time of a step. The interval grows with the distance from the probes."""
        middle = self._at(nodes)
        least, most = self.probes[0].nodes, self.probes[-1].nodes
        farther = nodes / most if nodes > most else least / nodes if nodes < least else 1.0
        error = max(LEAST_ERROR, 2 * self.error) * (1 + math.log2(max(1.0, farther)))
        return Prediction(nodes, Range(middle / (1 + error), middle * (1 + error)), nodes / most)

    def _at(self, nodes: int) -> float:
        if self.weak:
            return self.parallel + self.serial * math.log2(nodes) if nodes > 1 else self.parallel
        return self.serial + self.parallel / nodes


def fit(probes: Sequence[Probe], weak: bool = False) -> Fit:
    """Least squares of the relative error. Strong: T = serial + parallel / n (Amdahl). Weak: T = parallel +
    serial·log₂n, the growth of a tree's or hierarchy's latency. Neither term is below 0. Raises InputError for fewer
    than two node counts, and for times that are not positive."""
    merged = _merged(probes)
    if len(merged) < 2:
        raise InputError(f"probes of {len(merged)} node count; valid: two different ones or more")
    rows = [(1.0, math.log2(one.nodes)) if weak else (1.0 / one.nodes, 1.0) for one in merged]
    times = [one.seconds for one in merged]
    parallel, serial = solved(rows, times)
    errors = [abs(parallel * a + serial * b - time) / time for (a, b), time in zip(rows, times, strict=True)]
    return Fit(serial=serial, parallel=parallel, weak=weak, probes=tuple(merged), error=max(errors))


def _merged(probes: Sequence[Probe]) -> list[Probe]:
    """One for each node count: the geometric mean of its times."""
    times: dict[int, list[float]] = {}
    for one in probes:
        if not _SHORTEST < one.seconds < _LONGEST or one.nodes < 1:
            raise InputError(f"a probe of {one.nodes} nodes took {one.seconds} s; valid: times above 0, up to years")
        times.setdefault(one.nodes, []).append(math.log(one.seconds))
    return [Probe(nodes, math.exp(sum(found) / len(found))) for nodes, found in sorted(times.items())]


def solved(rows: Sequence[tuple[float, float]], times: Sequence[float]) -> tuple[float, float]:
    """The two factors, neither below 0, with the least squares of the relative error."""
    scaled = [(a / time, b / time) for (a, b), time in zip(rows, times, strict=True)]
    aa, ab, bb = (sum(x * y for x, y in pairs) for pairs in (
        [(a, a) for a, _ in scaled], [(a, b) for a, b in scaled], [(b, b) for _, b in scaled]))  # fmt: skip
    a1, b1 = sum(a for a, _ in scaled), sum(b for _, b in scaled)
    whole = aa * bb - ab * ab
    first, second = (bb * a1 - ab * b1) / whole, (aa * b1 - ab * a1) / whole
    if second < 0:
        return a1 / aa, 0.0
    if first < 0:
        return 0.0, b1 / bb
    return first, second
