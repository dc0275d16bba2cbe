"""The laws of Amdahl and Gustafson for probe runs: which part of a step more nodes do not help, and what follows.

Amdahl (1967) keeps the work: on n nodes it is done 1/(f + (1 - f)/n) times as fast, f being a part of the step on one
node. Gustafson (CACM 31, 1988) lets the work grow with the nodes: n of them do n - f·(n - 1) times as much in the time
of their step, f being a part of that time. The two fractions are of different times and do not compare.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slurmopt.planning.ranges import Range
from slurmopt.planning.scaling import LEAST_ERROR, Fit, Probe, solved

_Pair = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Law:
    """A law, fitted to the probes."""

    name: str
    formula: str
    """S: how many times as fast as one node; T: the seconds of a step."""
    values: dict[str, float]
    """Of the letters and words of the formula; f a fraction, the others seconds."""
    fraction: Range | None
    """The 90 % interval of f; None where the formula has none."""
    meaning: str


def laws(fit: Fit) -> list[Law]:
    """Strong scaling: Amdahl's. Weak scaling: the growth with the logarithm that predictions use, and Gustafson's."""
    if fit.weak:
        return [_logarithm(fit), gustafson(fit.probes)]
    return [amdahl(fit)]


def amdahl(fit: Fit) -> Law:
    """f = serial / (serial + parallel), of the fit."""
    serial, parallel = fit.serial, fit.parallel
    whole = serial + parallel
    rows = [(1.0 / (one.nodes * one.seconds), 1.0 / one.seconds) for one in fit.probes]
    fraction, slope = fit.serial_fraction, (-serial / whole**2, parallel / whole**2)
    limit = f"S is {1 / fraction:,.3g} at most" if fraction > 1e-4 else "no limit of S is seen"
    return Law(
        name="amdahl",
        formula="S(n) = 1 / (f + (1 - f)/n)",
        values={"f": fraction, "serial": serial, "parallel": parallel},
        fraction=_interval(fraction, rows, slope, fit.error),
        meaning=f"f of the step on one node does not get shorter with more nodes: {limit}",
    )


def gustafson(probes: Sequence[Probe]) -> Law:
    """Least squares of the relative error of T(n) = T₁·n / (n - f·(n - 1)), with f from 0 to 1: 1/T is linear in 1/T₁
    and f/T₁. `probes`: one for each of two node counts or more."""
    rows = [(1.0, -(one.nodes - 1) / one.nodes) for one in probes]
    rate, lost = solved(rows, [1 / one.seconds for one in probes])
    if lost > rate:  # f of 1: the nodes do no more than one of them, T = T₁·n
        each = [one.seconds / one.nodes for one in probes]
        rate = lost = sum(each) / sum(time * time for time in each)
    fraction = lost / rate
    error = max(abs((rate * a + lost * b) * one.seconds - 1) for (a, b), one in zip(rows, probes, strict=True))
    scaled = [(a * one.seconds, b * one.seconds) for (a, b), one in zip(rows, probes, strict=True)]
    return Law(
        name="gustafson",
        formula="S(n) = n - f·(n - 1)",
        values={"f": fraction, "one": 1 / rate},
        fraction=_interval(fraction, scaled, (-fraction / rate, 1 / rate), error),
        meaning="f of the step on n nodes is time in which they do no more than one would: in the same time "
        f"many nodes do {1 - fraction:.0%} of n times the work of one",
    )


def _logarithm(fit: Fit) -> Law:
    return Law(
        name="logarithm",
        formula="T(n) = parallel + serial·log₂(n)",
        values={"parallel": fit.parallel, "serial": fit.serial},
        fraction=None,
        meaning=f"each doubling of the nodes makes the step {fit.serial:.3g} s longer",
    )


def _interval(fraction: float, rows: Sequence[_Pair], slope: _Pair, error: float) -> Range:
    """The 90 % interval of a fraction: the relative error of a probe, as in `Fit.predicted`, carried on to first order
    through the least squares over `rows` and the fraction's `slope` by the two factors."""
    aa, ab, bb = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    whole, (x, y) = aa * bb - ab * ab, slope
    variance = (x * x * bb - 2 * x * y * ab + y * y * aa) / whole
    half = max(LEAST_ERROR, 2 * error) * math.sqrt(max(0.0, variance))
    return Range(max(0.0, fraction - half), min(1.0, fraction + half))
