"""When to save, against published values and a simulation."""

from __future__ import annotations

import random

import pytest

from slurmopt.planning.interruptions import daly, expected_seconds, optimum, young

MINUTE, HOUR = 60.0, 3600.0


@pytest.mark.parametrize(
    ("mtbf", "published"),  # Daly 2006, figures 3 to 5: δ = 5 min, R = 10 min
    [(24 * HOUR, 117 * MINUTE), (6 * HOUR, 57 * MINUTE), (15 * MINUTE, 9.1 * MINUTE)],
)
def test_dalys_figures(mtbf: float, published: float) -> None:
    assert daly(5 * MINUTE, mtbf) == pytest.approx(published, rel=0.01)
    assert optimum(5 * MINUTE, mtbf) == pytest.approx(published, rel=0.01)


def test_youngs_is_the_limit_of_rare_failures() -> None:
    assert young(10, 1e7) == pytest.approx(optimum(10, 1e7), rel=0.001)
    assert young(300, 900) > 1.2 * optimum(300, 900)


@pytest.mark.parametrize("mtbf", [600.0, 7200.0, 1e6])
@pytest.mark.parametrize("blocked", [0.5, 30.0, 400.0])
def test_no_other_interval_is_faster_than_the_optimum(mtbf: float, blocked: float) -> None:
    def time(interval: float) -> float:
        return expected_seconds(1e5, interval, blocked, 60, mtbf)

    best = optimum(blocked, mtbf)
    assert time(best) <= min(time(best * factor) for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0))


def simulated(work: float, interval: float, blocked: float, restart: float, mtbf: float, seed: int) -> float:
    draw, time, done = random.Random(seed), 0.0, 0.0
    until = draw.expovariate(1 / mtbf)
    while done < work:
        step = min(interval, work - done) + blocked
        if time + step <= until:
            time, done = time + step, done + min(interval, work - done)
            continue
        time = until
        until = time + draw.expovariate(1 / mtbf)
        while until < time + restart:  # it fails while it restarts, too
            time = until
            until = time + draw.expovariate(1 / mtbf)
        time += restart
    return time


@pytest.mark.parametrize(("interval", "blocked", "restart", "mtbf"), [(600, 20, 120, 3000), (200, 5, 60, 800)])
def test_the_expected_time_is_that_of_a_simulation(
    interval: float, blocked: float, restart: float, mtbf: float
) -> None:
    work = 50 * interval
    times = [simulated(work, interval, blocked, restart, mtbf, seed) for seed in range(400)]
    assert sum(times) / len(times) == pytest.approx(expected_seconds(work, interval, blocked, restart, mtbf), rel=0.04)


def test_without_failures_the_time_is_work_and_saves() -> None:
    assert expected_seconds(1000, 100, 1, 60, 1e12) == pytest.approx(1010, rel=1e-6)
    assert expected_seconds(1000, 100, 1, 60, 1e12, drain=30) == pytest.approx(1010, rel=1e-6)
    assert expected_seconds(1000, None, 0, 60, 1e12) == pytest.approx(1000, rel=1e-6)


def test_a_save_in_the_background_that_takes_longer_loses_more() -> None:
    at_once, slow = (expected_seconds(1e5, 600, 2, 60, 3600, drain=drain) for drain in (0, 300))
    assert slow > 1.05 * at_once


def test_a_training_that_never_gets_through_is_a_large_number() -> None:
    assert expected_seconds(1e9, None, 0, 60, 1) > 1e100
