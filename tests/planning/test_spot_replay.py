"""A training replayed over a trace of spot instances: by hand, against a simulation in steps of a second, and beside
the formula for an exponential life."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from slurmopt.planning.spot.replay import (
    Job,
    Replay,
    best_of,
    daly_interval,
    exponential_seconds,
    intervals,
    outlook,
)
from slurmopt.planning.spot.trace import Trace, Uptimes, starting_points, uptimes

HOUR = 3600.0


def trace_of(*spans: tuple[float, int]) -> Trace:
    """Of pairs of seconds and a count."""
    times, counts, at = [], [], 0.0
    for seconds, count in spans:
        times.append(at)
        counts.append(count)
        at += seconds
    return Trace(tuple(times), tuple(counts), at)


def test_a_run_by_hand() -> None:
    """3600 s up: 200 to start, three times 1000 + 100, and 100 s of training that are lost. Half an hour later 200 to
    start, and the last 2000 with two saves."""
    up = uptimes(trace_of((3600, 1), (1800, 0), (20000, 1), (600, 0)), 1)
    found = Replay(up, Job(work=5000, blocked=100, restart=200), 1000).run(0.0)
    assert found is not None
    assert found.seconds == 3600 + 1800 + 200 + 2000 + 2 * 100
    assert (found.tally.interruptions, found.tally.lost) == (1, 100)
    assert found.tally.billed == 3600 + 2400
    assert found.tally.free == 0


def test_a_save_in_the_background_is_lost_until_it_is_safe() -> None:
    up = uptimes(trace_of((3600, 1), (1800, 0), (20000, 1), (600, 0)), 1)
    found = Replay(up, Job(work=5000, blocked=100, restart=200, drain=150), 1000).run(0.0)
    assert found is not None
    assert found.tally.lost == 1000 + 100, "the third save was not safe when the instance went"
    assert found.seconds == 3600 + 1800 + 200 + 3000 + 3 * 100 + 150


def test_the_first_hour_is_free_for_what_the_cloud_takes_back() -> None:
    """Four instances for half an hour; then three are taken back, and the user gives back the fourth."""
    trace = trace_of((1800, 4), (600, 1), (30000, 4), (60, 0))
    job = Job(work=6000, blocked=60, restart=0)
    by_aws, by_seconds = (Replay(uptimes(trace, 4), job, 600, free=free).run(0.0) for free in (3600.0, 0.0))
    assert by_aws is not None
    assert by_seconds is not None
    assert by_aws.seconds == by_seconds.seconds
    assert by_aws.tally.free == 3 * 1800
    assert by_seconds.tally.free == 0
    assert by_seconds.tally.billed - by_aws.tally.billed == 3 * 1800
    second = by_aws.seconds - 2400
    assert by_aws.tally.billed == 1800 + 4 * second


def test_an_instance_that_is_taken_back_after_an_hour_is_billed_from_its_first_second() -> None:
    up = uptimes(trace_of((3601, 1), (600, 0), (30000, 1), (60, 0)), 1)
    found = Replay(up, Job(work=6000, blocked=60, restart=0), 600).run(0.0)
    assert found is not None
    assert found.tally.free == 0
    assert found.tally.billed > 3601


def test_a_gang_runs_with_all_of_its_instances_or_not_at_all() -> None:
    trace = trace_of((100, 3), (200, 4), (300, 5), (400, 3), (500, 16))
    assert [(one.start, one.seconds, one.left) for one in uptimes(trace, 4).each] == [(100, 500, 3), (1000, 500, 3)]
    assert [(one.start, one.seconds, one.left) for one in uptimes(trace, 5).each] == [(300, 300, 3), (1000, 500, 3)]
    assert uptimes(trace, 17).each == ()
    assert uptimes(trace, 3).always


def test_the_trace_begins_again_where_it_ends() -> None:
    up = uptimes(trace_of((100, 1), (50, 0), (200, 1)), 1)
    (one,) = up.each
    assert (one.start, one.seconds) == (150, 300)
    assert up.available == pytest.approx(300 / 350)
    found = Replay(up, Job(work=90, blocked=10, restart=0), 90).run(50.0)
    assert found is not None
    assert found.seconds == pytest.approx(100 + 100), "50 s are left, of which nothing is saved; then 50 s of waiting"


def of_an_uptime(up: int, left: int, job: Job, interval: int) -> tuple[int | None, int, int]:
    """When it is done, what is kept and what was trained, one second of training after the other."""
    clock, trained, safe = int(job.restart), 0, [(0, 0)]
    while clock < up and trained < left:
        for _ in range(min(interval, left - trained)):
            trained, clock = trained + (clock < up), clock + 1
        clock += int(job.blocked)
        safe.append((clock + int(job.drain), trained))
    kept = max(amount for when, amount in safe if when <= up or amount == 0)
    return (safe[-1][0] if kept == left else None), kept, trained


def stepwise(trace: list[int], nodes: int, job: Job, interval: int, begin: int) -> tuple[float, int, float]:
    """Finish, interruptions and lost training, looking at each second of the trace."""
    left, time, interruptions, lost = int(job.work), 0, 0, 0
    while True:
        while trace[(begin + time) % len(trace)] < nodes:
            time += 1
        up = 0
        while trace[(begin + time + up) % len(trace)] >= nodes:
            up += 1
        done, kept, trained = of_an_uptime(up, left, job, interval)
        if done is not None:
            return time + done, interruptions, lost
        left, time, interruptions, lost = left - kept, time + up, interruptions + 1, lost + trained - kept


@pytest.mark.parametrize("seed", range(40))
def test_a_simulation_in_steps_of_a_second_agrees(seed: int) -> None:
    draw = random.Random(seed)
    spans: list[tuple[float, int]] = [(draw.randint(5, 200), draw.choice([0, 1, 2, 2, 3, 3, 4])) for _ in range(30)]
    nodes, interval = draw.choice([1, 2, 3]), draw.randint(5, 60)
    job = Job(
        work=draw.randint(50, 3000), blocked=draw.randint(1, 9), restart=draw.randint(0, 20), drain=draw.choice([0, 7])
    )
    trace = trace_of((300, 4), *spans, (60, 0))
    seconds = [count for length, count in [(300, 4), *spans, (60, 0)] for _ in range(int(length))]
    replay = Replay(uptimes(trace, nodes), job, interval)
    for begin in (0, 17, len(seconds) // 2, len(seconds) - 30):
        found = replay.run(begin)
        assert found is not None
        expected = stepwise(seconds, nodes, job, interval, begin)
        assert (found.seconds, found.tally.interruptions, found.tally.lost) == pytest.approx(expected)


@pytest.mark.parametrize("work", range(40_000, 41_000, 50))
def test_a_trace_that_begins_again_many_times_is_the_same_trace_written_out(work: int) -> None:
    """Whole rounds are skipped at once; written out a hundred times, none is."""
    spans = [(500.0, 1), (40.0, 0), (300.0, 1), (90.0, 0)]
    job = Job(work=work, blocked=7, restart=20, drain=3)
    short, long = (uptimes(trace_of(*spans * times), 1) for times in (1, 100))
    for begin in (0.0, 123.0, 510.0, 900.0):
        one, other = Replay(short, job, 50).run(begin), Replay(long, job, 50).run(begin)
        assert one is not None
        assert other is not None
        assert one.seconds == pytest.approx(other.seconds)
        assert one.seconds > 50 * 930
        assert one.tally.billed == pytest.approx(other.tally.billed)
        assert one.tally.lost == pytest.approx(other.tally.lost)


def test_what_never_gets_through_a_save_never_finishes() -> None:
    up = uptimes(trace_of((600, 1), (600, 0)), 1)
    job = Job(work=7200, blocked=60, restart=120)
    assert outlook(up, job, 480) is None
    assert outlook(up, job, 400) is not None
    assert outlook(up, Job(work=400, blocked=60, restart=120), 480) is not None


def test_without_interruptions_it_is_start_work_and_saves() -> None:
    found = outlook(uptimes(trace_of((100, 2), (100, 9)), 2), Job(work=1000, blocked=10, restart=50), 100)
    assert found is not None
    assert found.p50 == found.p90 == 50 + 1000 + 10 * 10
    assert found.tally.billed == 2 * found.p50


def alternating(draw: random.Random, mean_up: float, mean_down: float, count: int, sigma: float | None) -> Uptimes:
    """Uptimes of an exponential life, or of a log-normal one of the same mean, with exponential waits."""
    spans: list[tuple[float, int]] = []
    for _ in range(count):
        long = draw.expovariate(1) if sigma is None else draw.lognormvariate(-sigma * sigma / 2, sigma)
        spans += [(mean_up * long, 1), (draw.expovariate(1 / mean_down), 0)]
    return uptimes(trace_of(*spans), 1)


def test_an_exponential_life_is_what_the_formula_says() -> None:
    up = alternating(random.Random(7), 2 * HOUR, HOUR, 5000, None)
    job = Job(work=40 * HOUR, blocked=60, restart=300)
    found = outlook(up, job, 900)
    assert found is not None
    assert found.mean == pytest.approx(exponential_seconds(up, job, 900), rel=0.04)


def test_a_life_that_is_not_exponential_is_not() -> None:
    """Of the same mean, but with a coefficient of variation of 2.5, as spot traces have it: an interval beyond the mean
    uptime loses far more in the formula than in the trace."""
    up = alternating(random.Random(8), 2 * HOUR, HOUR, 5000, 1.4)
    job = Job(work=40 * HOUR, blocked=60, restart=300)
    found = outlook(up, job, 4 * HOUR)
    assert found is not None
    assert found.mean < 0.75 * exponential_seconds(up, job, 4 * HOUR)


@pytest.mark.parametrize("sigma", [None, 1.4])
def test_the_best_interval_of_the_search_is_no_worse_than_dalys(sigma: float | None) -> None:
    up = alternating(random.Random(9), 3 * HOUR, HOUR, 400, sigma)
    job = Job(work=40 * HOUR, blocked=120, restart=600)
    tried = [found for each in intervals(up, job) if (found := outlook(up, job, each)) is not None]
    best, daly = best_of(tried), outlook(up, job, daly_interval(up, job))
    assert daly is not None
    assert best.mean <= daly.mean
    if sigma is None:
        assert 0.5 * daly.interval <= best.interval <= 2 * daly.interval, "there Daly's is the optimum"


def test_starting_points_are_spread_over_the_trace_and_in_step_with_none_of_its_periods() -> None:
    points = sorted(starting_points(1000.0, 200))
    gaps = [after - before for before, after in pairwise([0.0, *points, 1000.0])]
    assert max(gaps) < 3 * 1000 / 200
    for period in (10.0, 25.0, 50.0, 500.0):
        assert sum(point % period < period / 2 for point in points) == pytest.approx(100, abs=12)
    assert points == sorted(starting_points(1000.0, 200))
