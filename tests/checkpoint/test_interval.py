"""Which step is saved next, and the reason that a user reads."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmopt.checkpoint.interval import Interval
from slurmopt.planning.interruptions import daly

DAY = 86400.0


@pytest.mark.parametrize("every", [0, -5, "0", "1.5", 1e3, True, "", "often", "0min", None])
def test_what_is_no_interval_names_the_valid_forms(every: int | str) -> None:
    with pytest.raises(ValueError, match=r'a number of steps .* a time .*"10min", or auto'):
        Interval(every, DAY)


@pytest.mark.parametrize("mtbf", [0.0, -1.0, math.nan])
def test_a_mean_time_between_failures_is_positive(mtbf: float) -> None:
    with pytest.raises(ValueError, match="valid is more than 0 seconds"):
        Interval("auto", mtbf)


@pytest.mark.parametrize(("mtbf", "minutes"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_daly_as_published(mtbf: float, minutes: float) -> None:
    """The paper's figures 3 to 5: saves of 5 minutes on three machines."""
    assert daly(5 * 60, mtbf * 60) / 60 == pytest.approx(minutes, abs=0.5 if minutes > 10 else 0.05)


@pytest.mark.parametrize("blocked", [1e-5, 1e-3, 0.01, 0.1, 0.4, 0.9])
def test_daly_is_where_the_expected_time_is_least(blocked: float) -> None:
    """Against the paper's exact model, (e^((T + δ)/M) - 1) / T for M = 1, searched over T."""

    def cost(interval: float) -> float:
        return math.expm1(interval + blocked) / interval

    least = min(cost(10 * 0.99**n) for n in range(1500))
    assert cost(daly(blocked, 1.0)) <= least * 1.002


def test_daly_stops_at_the_mean_time_between_failures() -> None:
    assert daly(2 * DAY, DAY) == DAY
    assert daly(50 * DAY, DAY) == DAY
    assert daly(0.0, DAY) == 0.0


def test_a_number_of_steps_means_its_multiples_also_after_a_restart() -> None:
    interval = Interval(50, DAY)
    assert interval.next_step(0, 1.0) == 50
    assert interval.next_step(49, 1.0) == 50
    assert interval.next_step(50, 1.0) == 100
    interval.saved(73, 10.0, 0.1, 4.0)  # out of turn: a signal
    assert interval.next_step(73, 1.0) == 100
    assert Interval("50", DAY).next_step(73, 1.0) == 100
    assert interval.why() == "every 50 steps: as configured"
    assert Interval(1, DAY).why() == "every step: as configured"


def test_a_time_is_counted_in_steps_at_the_measured_pace() -> None:
    interval = Interval("10min", DAY)
    assert interval.why() == "every 10min"
    assert interval.next_step(0, 0.5) == 1200
    interval.saved(1200, 600.0, 0.1, 4.0)
    assert interval.next_step(1200, 0.25) == 3600
    assert interval.why() == "every 2,400 steps (10m00s): 10min, as configured"
    assert interval.next_step(1300, 60.0) == 1301, "the pace fell, so it is overdue"
    assert interval.next_step(1200, 3600.0) == 1201
    assert interval.why() == "every step (1h00m): 10min, as configured"


def test_a_time_includes_what_lies_between_steps_when_told_the_time() -> None:
    interval = Interval("10min", DAY)
    interval.saved(100, 1000.0, 0.1, 4.0)
    assert interval.next_step(100, 1.0, now=1000.0) == 700
    assert interval.next_step(200, 1.0, now=1400.0) == 400, "300 s of evaluation count"
    assert interval.next_step(200, 1.0, now=9000.0) == 201
    assert interval.next_step(200, 1.0, now=0.0) == 800, "a clock that went back postpones by one interval at most"


def test_auto_saves_early_once_to_measure() -> None:
    assert Interval("auto", DAY).next_step(0, 0.1) == 300, "30 seconds"
    assert Interval("auto", DAY).next_step(0, 60.0) == 10, "10 steps"
    resumed = Interval("auto", DAY)
    assert resumed.next_step(5000, 1.0) == 5030
    assert resumed.next_step(5020, 1.0) == 5030, "asking again does not postpone it"
    assert resumed.why() == "after 30 steps (30s): the first one, to measure what a save costs"
    timed = Interval("auto", DAY)
    assert timed.next_step(0, 1.0, now=50.0) == 30
    assert timed.next_step(2, 1.0, now=90.0) == 10, "30 s are over, 10 steps are not"


def test_auto_follows_daly_once_a_save_was_measured() -> None:
    interval = Interval("auto", DAY)
    interval.next_step(0, 0.1)
    interval.saved(300, 30.0, 0.1)
    # √(2 · 0.1 · 86400) s = 131.45 s; Daly makes it 131.38 s
    assert interval.next_step(300, 0.1) == 300 + 1314
    assert interval.why().endswith("Daly with 0.1 s blocked, none durable yet, a failure each 1d00h")
    interval.became_durable(4.0)
    assert interval.next_step(300, 0.1) == 300 + 1314
    assert interval.why() == (
        "every 1,314 steps (2m11s): Daly with 0.1 s blocked, 4 s until durable, a failure each 1d00h"
    )


def test_auto_waits_until_the_last_is_durable() -> None:
    interval = Interval("auto", DAY)
    interval.saved(300, 30.0, 0.1, 1200.0)
    assert interval.next_step(300, 1.0) == 1500
    assert interval.why() == (
        "every 1,200 steps (20m00s): no sooner than the last is durable; Daly asks for 2m11s with 0.1 s blocked, "
        "a failure each 1d00h"
    )


def test_one_slow_save_does_not_change_the_rhythm() -> None:
    interval = Interval("auto", DAY)
    for step in range(100, 500, 100):
        interval.saved(step, step, 0.1, 4.0)
    before = interval.next_step(400, 1.0) - 400
    interval.saved(500, 500.0, 300.0, 3000.0)
    assert interval.next_step(500, 1.0) - 500 == before


def test_a_rollback_counts_from_where_it_went() -> None:
    interval = Interval("10min", DAY)
    interval.saved(5000, 5000.0, 0.1, 4.0)
    assert interval.next_step(100, 1.0) == 700


def test_a_pace_that_was_not_measured_yet_is_said() -> None:
    interval = Interval("10min", DAY)
    assert interval.next_step(7, 0.0, now=0.0) == 17
    assert interval.next_step(9, math.nan, now=1e6) == 17, "asking again does not postpone it"
    assert interval.why() == "after 10 steps, the pace of which is not known yet: 10min, as configured"


def test_broken_measurements_are_left_out() -> None:
    interval = Interval("auto", DAY)
    interval.saved(100, 100.0, math.inf, math.inf)
    assert interval.next_step(100, 1.0) == 130, "still the first guess"
    interval.saved(130, 130.0, 0.1, math.inf)
    assert interval.next_step(130, 1.0) == 130 + 132
    assert interval.next_step(130, math.inf) == 131
    assert interval.next_step(130, 5e-324) > 130
    interval.saved(140, 140.0, -1.0, -1.0)
    interval.saved(150, 150.0, -1.0, -1.0)
    assert interval.next_step(150, 1.0) == 151, "less than nothing is nothing"


every = st.one_of(st.integers(1, 10**6), st.sampled_from(["auto", "1s", "10min", "3d"]))
number = st.floats(allow_nan=True, allow_infinity=True)
calls = st.lists(st.tuples(st.integers(0, 10**9), number, number, st.none() | number, number), max_size=12)


@settings(deadline=None)
@given(every, st.floats(1e-3, 1e9), calls)
def test_any_measurements_give_a_later_step_and_one_line(
    every: int | str, mtbf: float, calls: list[tuple[int, float, float, float | None, float]]
) -> None:
    """Broken clocks included: nothing is raised, and two that are told the same answer the same."""
    one, other = Interval(every, mtbf), Interval(every, mtbf)
    for step, now, blocked, durable, pace in calls:
        for interval in (one, other):
            interval.saved(step, now, blocked, durable)
        for asked in (step, step + 3):
            answer = one.next_step(asked, pace, now)
            assert answer > asked
            assert answer == other.next_step(asked, pace, now)
        assert one.why() == other.why()
        assert "\n" not in one.why()
