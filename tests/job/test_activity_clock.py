"""The activity clock: each second of a process lies in exactly one activity, whatever it does in which order."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmopt.job.heartbeat.activity_clock import FIRST_STEP, MOST_NAMES, OTHERS, RUNNING, ActivityClock


@dataclass
class Time:
    """A clock that the test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Model:
    """What a process spends its time on, told second by second."""

    time: Time
    expected: Counter[str] = field(default_factory=Counter)
    has_stepped: bool = False

    def work(self, activity: str, seconds: float) -> None:
        if activity == FIRST_STEP and self.has_stepped:
            activity = RUNNING
        self.time.now += seconds
        self.expected[activity] += seconds


SECONDS = st.integers(0, 1000)  # whole numbers: their sums are exact
NAMES = st.sampled_from(["input", "checkpoint", "evaluation", "restoring", "epoch", "a", "b"])
# A number is seconds of work, None a step, a pair an activity with what happens inside it.
BLOCKS = st.recursive(st.none() | SECONDS, lambda inside: st.tuples(NAMES, st.lists(inside, max_size=4)), max_leaves=30)
PHASES = st.lists(
    st.tuples(st.sampled_from(["checking", "importing", "waiting", RUNNING]), st.lists(BLOCKS)), max_size=5
)


def run(block: object, activity: str, clock: ActivityClock, model: Model) -> None:
    if block is None:
        clock.stepped()
        model.has_stepped = True
    elif isinstance(block, int):
        model.work(activity, block)
    elif isinstance(block, tuple):
        name, inside = block
        outer = clock.begin(name)
        for each in inside:
            run(each, name, clock, model)
        clock.resume(outer)
    told = clock.spent()
    assert sum(told.values()) == clock.age
    assert told == {name: seconds for name, seconds in model.expected.items() if seconds}


@settings(max_examples=300, deadline=None)
@given(PHASES)
def test_the_innermost_activity_gets_each_second_and_they_sum_to_the_age(
    phases: list[tuple[str, list[object]]],
) -> None:
    time = Time()
    clock, model = ActivityClock("starting", time), Model(time)
    model.work("starting", 7)
    for phase, blocks in phases:
        clock.enter(phase)
        for block in blocks:
            run(block, FIRST_STEP if phase == RUNNING else phase, clock, model)
    assert clock.age == sum(model.expected.values())


def test_the_number_of_names_is_bounded_and_no_time_is_lost() -> None:
    time = Time()
    clock = ActivityClock("starting", time)
    clock.enter(RUNNING)
    for number in range(1000):
        for name in (f"phase {number}", "input"):
            outer = clock.begin(name)
            time.now += 1
            clock.resume(outer)
    spent = clock.spent()
    assert len(spent) <= MOST_NAMES
    assert spent["input"] == 1000
    assert spent["phase 3"] == 1
    assert spent[OTHERS] > 900
    assert sum(spent.values()) == 2000


def test_what_another_thread_waits_for_does_not_block_the_training() -> None:
    time = Time()
    clock = ActivityClock(RUNNING, time)

    def prefetch() -> None:
        outer = clock.begin_input()
        time.now += 5
        clock.resume(outer)

    thread = threading.Thread(target=prefetch)
    thread.start()
    thread.join()
    assert clock.spent() == {RUNNING: 5}


def test_a_training_in_another_thread_is_measured_from_its_first_step_on() -> None:
    time = Time()
    clock = ActivityClock(RUNNING, time)

    def train() -> None:
        clock.stepped()
        outer = clock.begin_input()
        time.now += 5
        clock.resume(outer)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert clock.spent() == {"input": 5}


def test_a_switch_while_a_reader_is_held_up_takes_no_time_to_the_activity_before() -> None:
    time = Time()
    held_up: list[Callable[[], None]] = []

    def now() -> float:
        if held_up:
            held_up.pop()()
        return time.now

    clock = ActivityClock(RUNNING, now)
    time.now += 3

    def switch() -> None:
        clock.begin_input()
        time.now += 5

    held_up.append(switch)  # when the reader has read the activity, and asks for the time
    assert clock.spent() == {RUNNING: 3, "input": 5}


@pytest.mark.parametrize("rounds", [20_000])
def test_a_reader_in_another_thread_always_gets_a_whole(rounds: int) -> None:
    """The heartbeat's thread reads while the training switches; the real clock, for the order of both is at stake."""
    clock = ActivityClock(RUNNING)
    clock.stepped()
    done, bad = threading.Event(), []

    def read() -> None:
        while not done.is_set():
            before = clock.age
            spent = clock.spent()
            if not before - 1e-6 <= sum(spent.values()) <= clock.age + 1e-6:
                bad.append(spent)

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(rounds):
        clock.resume(clock.begin_input())
    done.set()
    thread.join()
    assert bad == []
