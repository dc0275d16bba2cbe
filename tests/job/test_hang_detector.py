"""When ranks count as hung, in an observer's time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmopt.job.watchdog.hang_detector import Allowance, Hang, Ranks
from slurmopt.run_folder.heartbeat import Heartbeat

AUTO = Allowance(hang_after=None, deadline=600, heartbeat=10, interval=5, collective=600)
CLOCKS_APART = 1e6


class Attempt:
    """Ranks that beat at each look, every five seconds, unless they are silent."""

    def __init__(self, count: int, allowed: Allowance = AUTO, **known: Any) -> None:
        self.ranks, self.allowed, self.now = Ranks(count, **known), allowed, 0.0
        self.beats = {
            rank: Heartbeat(rank, count, f"node{rank // 2}", 100 + rank, phase="running") for rank in range(count)
        }
        self.silent: set[int] = set()

    def hang(self) -> Hang | None:
        return self.ranks.hang(replace(self.allowed, slowest=self.ranks.slowest, first=self.ranks.first), self.now)

    def look(self) -> None:
        self.now += self.allowed.interval
        for rank, beat in self.beats.items():
            if rank not in self.silent:
                beat.time = self.now + rank * CLOCKS_APART
        self.ranks.take({rank: Heartbeat(**vars(beat)) for rank, beat in self.beats.items()}, self.now)

    def step(self, *ranks: int) -> None:
        """These, or all, make a step, and tell of it at the next look."""
        for rank in ranks or self.beats:
            beat = self.beats[rank]
            beat.step, beat.step_time = (beat.step or 0) + 1, self.now + rank * CLOCKS_APART
            beat.first_step = beat.step if beat.first_step is None else beat.first_step
        self.look()

    def hangs_after(self, most: float = 1e5) -> float | None:
        """How long nothing has to happen until it is a hang."""
        start = self.now
        while self.hang() is None and self.now - start < most:
            self.look()
        return self.now - start if self.hang() else None


def test_auto_leaves_a_collective_its_own_timeout_or_is_twenty_times_the_slowest_step() -> None:
    for timeout, expected in ((600, 660), (1800, 1860), (10, 300)):
        quick = Attempt(2, replace(AUTO, collective=timeout))
        for _ in range(5):
            quick.step()
        assert quick.hangs_after() == expected
    slow = Attempt(2)
    for _ in range(5):
        for _ in range(11):  # a minute between two steps
            slow.look()
        slow.step()
    assert 1000 <= (slow.hangs_after() or 0) <= 1200


def test_seconds_of_the_users_count_but_never_below_three_heartbeats() -> None:
    for seconds, expected in ((60, 60), (3600, 3600), (1, 35)):
        attempt = Attempt(1, Allowance(seconds, 600, 10, 5))
        attempt.step()
        attempt.step()
        assert attempt.hangs_after() == expected


def test_what_never_reported_a_step_is_not_judged_by_steps() -> None:
    assert Attempt(2).hangs_after() is None
    assert Attempt(2, steps_expected=True).hangs_after() == 1805  # the first look showed them running


@pytest.mark.parametrize("phase", ["starting", "checking", "waiting", "restoring", "saving"])
def test_phases_of_our_own_have_an_allowance_of_their_own(phase: str) -> None:
    for allowed, expected in ((AUTO, 1800), (Allowance(60, 600, 10, 5), 600), (Allowance(900, 600, 10, 5), 900)):
        attempt = Attempt(2, allowed)
        attempt.step()
        attempt.beats[1].phase = phase
        attempt.look()
        assert attempt.hangs_after() == expected


def test_what_has_done_all_its_steps_may_take_longer() -> None:
    attempt = Attempt(1)
    attempt.beats[0].total_steps = 2
    attempt.step()
    attempt.step()
    assert attempt.hangs_after() == 1800


def test_metrics_without_a_step_show_that_it_goes_on() -> None:
    attempt = Attempt(1)
    attempt.step()
    for batch in range(100):
        attempt.beats[0].metrics = {"evaluated": batch}
        attempt.look()
        assert attempt.hang() is None


def test_one_rank_that_steps_is_enough_and_those_that_report_nothing_do_not_count() -> None:
    attempt = Attempt(4)
    for _ in range(100):
        attempt.step(0)
        assert attempt.hang() is None
    assert attempt.hangs_after() == 660
    found = attempt.hang()
    assert found is not None
    assert (found.rank, found.silent) == (0, [])


def test_the_lowest_step_stopped_first_and_then_the_older_one() -> None:
    attempt = Attempt(3)
    attempt.step()
    attempt.step(0, 2)
    attempt.hangs_after()
    found = attempt.hang()
    assert found is not None
    assert (found.rank, found.node, found.step, found.seconds) == (1, "node0", 1, 660)
    assert found.alike == 1
    attempt.step(1)
    attempt.beats[2].step_time = 0.0
    attempt.hangs_after()
    found = attempt.hang()
    assert found is not None
    assert (found.rank, found.step) == (2, 2)
    assert found.alike == 3, "all are at one step: their times do not tell which of them the others wait for"


def test_a_rank_in_an_earlier_phase_stopped_before_all_others() -> None:
    attempt = Attempt(3)
    attempt.step()
    attempt.beats[1].phase = "restoring"
    attempt.look()
    attempt.hangs_after()
    found = attempt.hang()
    assert found is not None
    assert (found.rank, found.phase) == (1, "restoring")


def test_a_silent_rank_stopped_before_all_others_also_while_they_step() -> None:
    attempt = Attempt(4)
    attempt.beats[2].step = 1000
    attempt.step()
    attempt.silent = {2}
    start = attempt.now
    while attempt.hang() is None:
        attempt.step(0, 1, 3)
    found = attempt.hang()
    assert found is not None
    assert attempt.now - start == 660
    assert (found.rank, found.node, found.silent, found.step) == (2, "node1", [2], 1001)


def test_a_rank_that_never_came_to_life_is_missed() -> None:
    attempt = Attempt(2)
    del attempt.beats[1]
    while attempt.hang() is None:
        attempt.step(0)
    found = attempt.hang()
    assert found is not None
    assert (found.rank, found.node, found.phase, found.silent) == (1, None, "starting", [1])
    assert found.seconds == 1800


def test_ranks_that_have_ended_say_nothing_until_all_have() -> None:
    attempt = Attempt(2)
    attempt.step()
    attempt.beats[0].phase = "ended"
    attempt.step(1)
    attempt.silent = {0}
    assert attempt.hangs_after() == 660
    found = attempt.hang()
    assert found is not None
    assert (found.rank, found.silent) == (1, [])
    attempt.beats[1].phase = "ended"  # and yet the step goes on: a thread that does not end, say
    attempt.look()
    assert attempt.hangs_after() == 1800


def test_nothing_from_before_counts_after_a_fresh_start() -> None:
    attempt = Attempt(2)
    attempt.step()
    attempt.step()
    attempt.hangs_after()
    attempt.ranks.start_afresh(attempt.now)
    assert attempt.hangs_after() == 660


@pytest.mark.parametrize("before", [0, 1000])
def test_a_first_step_that_has_not_been_done_may_take_long_though_one_was_reported(before: int) -> None:
    """`progress(0)`, or the step that was restored; then everything is compiled."""
    attempt = Attempt(2)
    for beat in attempt.beats.values():
        beat.step = beat.first_step = before
    attempt.look()
    assert attempt.hangs_after() == 1800


def test_a_later_step_may_take_as_long_as_three_first_ones() -> None:
    attempt = Attempt(2)
    for _ in range(120):  # ten minutes: everything is compiled
        attempt.look()
    attempt.step()
    attempt.step()
    assert 1700 <= (attempt.hangs_after() or 0) <= 1800


def test_a_phase_of_the_trainings_own_may_take_longer_than_a_step() -> None:
    attempt = Attempt(2)
    attempt.step()
    attempt.step()
    attempt.beats[0].phase = "evaluation"
    attempt.look()
    assert attempt.hangs_after() == 1800


def test_busy_files_or_gpus_are_signs_of_life_unless_a_time_is_named() -> None:
    for allowed, expected in ((AUTO, None), (replace(AUTO, hang_after=900.0), 900)):
        attempt = Attempt(2, allowed)
        attempt.step()
        attempt.step()
        start = attempt.now
        while attempt.hang() is None and attempt.now - start < 10_000:
            attempt.beats[1].active += 1
            attempt.look()
        assert (attempt.now - start if attempt.hang() else None) == expected
    attempt = Attempt(2)
    attempt.step()
    attempt.step()
    attempt.beats[1].active += 1
    attempt.look()
    assert attempt.hangs_after() == 660


def test_what_was_taken_for_a_hang_gets_twice_the_time_in_the_next_attempt() -> None:
    for hangs, expected in ((1, 1320), (2, 2640)):
        attempt = Attempt(2, replace(AUTO, hangs=hangs))
        attempt.step()
        attempt.step()
        assert attempt.hangs_after() == expected


def test_stacks_are_asked_for_before_a_collectives_own_timeout() -> None:
    early = AUTO.before_the_collective
    assert early is not None
    attempt = Attempt(2, early)
    attempt.step()
    attempt.step()
    assert attempt.hangs_after() == 540
    assert replace(AUTO, hang_after=60.0).before_the_collective is None
    assert replace(AUTO, collective=0.0).before_the_collective is None


def test_bytes_that_are_read_show_that_a_restore_goes_on() -> None:
    long = Attempt(2)
    for beat in long.beats.values():
        beat.phase = "restoring"
    long.look()
    for _ in range(1000):  # nearly an hour and a half, three times what the phase may stand still
        long.beats[1].moved_bytes += 8 << 20
        long.look()
        assert long.hang() is None
    assert long.hangs_after() == AUTO.patience


def test_a_trace_that_is_being_written_is_no_hang() -> None:
    traced = Attempt(2, replace(AUTO, is_traced=True))
    for _ in range(5):
        traced.step()
    assert traced.hangs_after() == AUTO.patience > AUTO.steps
    silent = Attempt(2, replace(AUTO, is_traced=True))
    for _ in range(5):
        silent.step()
    silent.silent = {1}
    assert silent.hangs_after() == pytest.approx(AUTO.patience, abs=5)
    early = traced.allowed.before_the_collective
    assert early is not None
    assert early.steps < AUTO.collective  # the stacks are asked for all the same
