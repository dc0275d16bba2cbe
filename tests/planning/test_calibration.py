"""Intervals that are learned from earlier runs hold the next run as often as they say."""

from __future__ import annotations

import math
import random

import pytest

from slurmopt.planning.calibration import interval
from slurmopt.planning.ranges import Range, largest
from slurmopt.planning.shapes import Calibration

HISTORIES = 400


def held(draw: random.Random, runs: int, tails: bool) -> float:
    """The share of simulated histories whose interval holds the next run. Each site is off by a factor of its own."""
    inside = 0
    for _ in range(HISTORIES):
        off, spread = draw.uniform(-0.5, 0.5), draw.uniform(0.03, 0.3)

        def ratio(off: float = off, spread: float = spread) -> float:
            noise = draw.gauss(0, 1) if not tails else draw.choice((-1, 1)) * draw.expovariate(1.0)
            return math.exp(off + spread * noise)

        found = interval([ratio() for _ in range(runs)])
        assert found is not None
        inside += found.low <= ratio() <= found.high
    return inside / HISTORIES


@pytest.mark.parametrize("runs", [2, 3, 5, 10, 20, 38, 39, 60, 200])
def test_ninety_percent_hold_the_next_run(runs: int) -> None:
    assert 0.85 <= held(random.Random(runs), runs, tails=False) <= 0.95


@pytest.mark.parametrize("runs", [10, 39, 100])
def test_they_do_so_with_heavy_tails(runs: int) -> None:
    assert 0.85 <= held(random.Random(runs), runs, tails=True) <= 0.96


def test_a_hundred_histories_of_mixed_lengths() -> None:
    draw, inside = random.Random(1), 0
    for _ in range(100):
        runs, spread = draw.randint(2, 60), draw.uniform(0.02, 0.4)
        found = interval([math.exp(draw.gauss(0.2, spread)) for _ in range(runs)])
        assert found is not None
        inside += found.low <= math.exp(draw.gauss(0.2, spread)) <= found.high
    assert 85 <= inside <= 95


@pytest.mark.parametrize("ratios", [[], [1.2], [0.0, -1.0, math.nan, math.inf, 1e-300, 1e30, 1.1]])
def test_fewer_than_two_runs_teach_nothing(ratios: list[float]) -> None:
    assert interval(ratios) is None


def test_what_was_learned_replaces_the_formulas_interval() -> None:
    learned = Calibration(memory=Range(1.1, 1.2), runs=5)
    assert learned.of_memory(Range(50, 72)) == Range(60 * 1.1, 60 * 1.2)
    assert learned.of_step(Range(1, 2)) == Range(1, 2)


def test_the_probability_and_the_quantiles_are_those_of_the_stated_ends() -> None:
    found = Range(60.0, 80.0)
    assert found.probability_below(80) == pytest.approx(0.95)
    assert found.probability_below(60) == pytest.approx(0.05)
    assert found.probability_below(found.middle) == pytest.approx(0.5)
    assert found.quantile(0.95) == pytest.approx(80)
    assert found.probability_below(0) == 0
    assert Range(5, 5).probability_below(5) == 1
    assert Range(5, 5).probability_below(4.9) == 0
    assert largest([Range(1, 9), Range(2, 3)]) == Range(2, 9)
