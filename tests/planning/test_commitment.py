"""How many GPUs to commit to, against all other levels, and waits against a simulation in steps."""

from __future__ import annotations

import math
import random

import pytest

from slurmopt.planning.capacity.commitment import best_level, bill, covered
from slurmopt.planning.capacity.demand import HOUR, Demand, Job, demand, peak, week
from slurmopt.planning.capacity.queue import first_come, recorded
from slurmopt.planning.right_size import quantile

DAY = 24 * HOUR


def month(seed: int) -> list[float]:
    """GPUs of each hour of 30 days: busy days, quiet nights and weekends."""
    draw, found = random.Random(seed), []
    for hour in range(30 * 24):
        is_busy = 8 <= hour % 24 < 20 and hour // 24 % 7 < 5
        found.append(float(max(0, round(draw.gauss(60 if is_busy else 20, 15)))))
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("committed", "rest"), [(1.0, 1.01), (2.1, 3.0), (1.0, 2.0), (1.25, 4.0), (0.13, 9.0), (3, 2)])
def test_no_other_level_is_cheaper_than_the_newsvendors(seed: int, committed: float, rest: float) -> None:
    gpus = month(seed)

    def cost(level: int) -> float:
        return sum(committed * level + rest * max(0.0, each - level) for each in gpus)

    cheapest = min(range(int(max(gpus)) + 2), key=cost)
    found = best_level(gpus, committed, rest)
    assert cost(found) == pytest.approx(cost(cheapest), rel=1e-12)
    assert found == cheapest
    if committed < rest:
        assert found == quantile(gpus, 1 - committed / rest)
    assert bill(gpus, found, committed, rest).total == pytest.approx(cost(found))


@pytest.mark.parametrize("seed", range(3))
def test_whole_nodes_are_the_cheapest_of_whole_nodes(seed: int) -> None:
    gpus = [each * 1.07 for each in month(seed)]
    levels = range(0, 200, 8)
    cheapest = min(levels, key=lambda level: sum(1.3 * level + 3.9 * max(0.0, each - level) for each in gpus))
    assert best_level(gpus, 1.3, 3.9, unit=8) == cheapest


def test_a_commitment_that_costs_as_much_as_on_demand_never_pays() -> None:
    assert covered(2.0, 2.0) == 0
    assert covered(1.5, 4.0) == pytest.approx(0.625)
    assert best_level([5.0, 6.0], 2.0, 2.0) == 0


def test_a_bill_by_hand() -> None:
    """Committed to 4 for three hours in which 2, 4 and 9 were used, at 1 and 3 each."""
    found = bill([2.0, 4.0, 9.0], 4, 1.0, 3.0)
    assert (found.fee, found.inside, found.idle, found.beyond, found.bought) == (12, 10, 2, 5, 15)
    assert found.total == 27
    assert found.amortised == pytest.approx(1.2), "the fee by the used GPU-hours, not by those that were paid for"
    assert found.utilisation == pytest.approx(10 / 12)
    nothing = bill([2.0], 0, 1.0, 3.0)
    assert (nothing.amortised, nothing.utilisation, nothing.total) == (None, None, 6)


def of(started: float, ended: float, gpus: int, submitted: float | None = None) -> Job:
    return Job(started if submitted is None else submitted, started, ended, gpus)


def test_demand_is_the_gpu_hours_of_each_hour() -> None:
    jobs = [of(1800, 3 * HOUR, 4), of(2 * HOUR + 900, 2 * HOUR + 2700, 8), of(HOUR, HOUR, 100)]
    assert demand(jobs) == Demand(0, (2.0, 4.0, 8.0))


def test_demand_adds_up_to_the_jobs() -> None:
    draw = random.Random(4)
    jobs = [
        of(start := draw.uniform(1e9, 1e9 + 9 * DAY), start + draw.uniform(0, DAY), draw.randint(1, 16))
        for _ in range(300)
    ]
    found = demand(jobs)
    assert found.gpu_hours == pytest.approx(sum(job.gpus * job.seconds for job in jobs) / HOUR)
    at = 50
    begin = (found.first + at) * HOUR
    inside = sum(job.gpus * max(0.0, min(job.ended, begin + HOUR) - max(job.started, begin)) for job in jobs)
    assert found.gpus[at] == pytest.approx(inside / HOUR)


def test_demand_from_a_time_on_leaves_out_what_was_before() -> None:
    assert demand([of(0, 10 * HOUR, 3)], since=8 * HOUR) == Demand(8, (3.0, 3.0))


def test_the_peak_counts_a_job_that_begins_when_another_ends_once() -> None:
    assert peak([of(0, 10, 4), of(10, 20, 4), of(12, 13, 1), of(5, 5, 90)]) == 5


def test_hours_are_those_of_the_weekday() -> None:
    """1970-01-01 was a Thursday."""
    found = week(Demand(2, (7.0, *([0.0] * (7 * 24 - 1)), 9.0)))
    assert found[3][2] == 9.0, "nine of ten weeks need at most the larger one of two"
    assert found[3][3] == 0.0
    short = week(Demand(24, (5.0,)))
    assert short[4][0] == 5.0
    assert short[3][23] is None


def test_waits_by_hand() -> None:
    """Eight GPUs. a takes all for 10; b (4) waits 9; c (8) waits until b is over, and d (1) behind it, though one is
    free."""
    jobs = [
        of(0, 10, 8, submitted=0), of(50, 60, 4, submitted=1), of(70, 75, 8, submitted=2), of(90, 91, 1, submitted=3),
        of(99, 100, 16, submitted=4),
    ]  # fmt: skip
    found = first_come(jobs, 8)
    assert (found.jobs, found.never) == (4, 1)
    assert found.mean == pytest.approx((0 + 9 + 18 + 22) / 4)
    assert found.p90 == 22
    was = recorded(jobs)
    assert was.mean == pytest.approx((0 + 49 + 68 + 87 + 95) / 5)
    assert first_come(jobs, 0) == type(found)(0, 0, 5, None, None)


def stepwise(jobs: list[Job], gpus: int) -> list[float]:
    """The waits, second by second."""
    waiting, ends, waits, now = sorted(jobs, key=lambda job: job.submitted), list[tuple[float, float]](), [], 0
    while waiting:
        ends = [(end, count) for end, count in ends if end > now]
        while waiting and waiting[0].submitted <= now and sum(c for _, c in ends) + waiting[0].gpus <= gpus:
            job = waiting.pop(0)
            waits.append(now - job.submitted)
            ends.append((now + job.seconds, job.gpus))
            if job.seconds == 0:
                ends.pop()
        now += 1
    return waits


@pytest.mark.parametrize("seed", range(20))
def test_waits_are_those_of_a_simulation_in_steps(seed: int) -> None:
    draw = random.Random(seed)
    times = sorted(draw.sample(range(400), 40))
    jobs = [Job(time, time, time + draw.randint(0, 60), draw.choice([1, 2, 4, 8])) for time in times]
    expected = stepwise(jobs, 8)
    found = first_come(jobs, 8)
    assert found.mean == pytest.approx(math.fsum(expected) / len(expected))
    assert found.p90 == quantile(expected, 0.9)
