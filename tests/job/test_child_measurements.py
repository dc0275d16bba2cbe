"""What the children of a rank measure, joined with what the rank measures: whatever arrives, the sum is its age."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmopt.job.heartbeat.activity_clock import FIRST_STEP, MOST_NAMES, RUNNING
from slurmopt.job.heartbeat.child_measurements import ChildMeasurements
from slurmopt.job.heartbeat.child_reports import ChildReports, Inbox

AMOUNTS = st.dictionaries(st.sampled_from([RUNNING, FIRST_STEP, "input", "evaluation", "a"]), st.integers(0, 500))
CHILDREN = st.lists(st.tuples(st.sampled_from("abc"), AMOUNTS, st.sampled_from([RUNNING, "evaluation", None])))


def message(child: str, spent: dict[str, Any], now: str | None = RUNNING, **counted: Any) -> dict[str, Any]:
    return {"id": child, "now": now, "spent": spent, "counted": counted}


@settings(max_examples=300, deadline=None)
@given(CHILDREN, st.lists(st.integers(0, 300), min_size=50, max_size=50))
def test_the_whole_is_the_rank_s_age_whatever_children_say(
    told: list[tuple[str, dict[str, int], str | None]], seconds: list[int]
) -> None:
    """Two children at once, messages out of order, and some that say more than there is."""
    children = ChildMeasurements()
    own = {"starting": 3.0, "importing": 4.0, FIRST_STEP: 20.0, RUNNING: 0.0}
    for (child, spent, now), passed in zip(told, seconds, strict=False):
        own[RUNNING] += passed
        children.take(message(child, dict(spent), now), own)
        joined = children.spent(own)
        assert sum(joined.values()) == pytest.approx(sum(own.values()))
        assert min(joined.values()) >= 0
        assert (joined["starting"], joined["importing"]) == (3.0, 4.0)


def test_a_childs_activities_are_taken_out_of_running() -> None:
    children = ChildMeasurements()
    children.take(message("a", {FIRST_STEP: 6, "input": 2}), {"starting": 1.0, FIRST_STEP: 10.0})
    own = {"starting": 1.0, FIRST_STEP: 10.0, RUNNING: 90.0}  # at its start the child could not measure for 2 s
    children.take(message("a", {FIRST_STEP: 6, "input": 32, RUNNING: 50}), own)
    assert children.spent(own) == {"starting": 1.0, FIRST_STEP: 8.0, "input": 32.0, RUNNING: 60.0}


def test_time_since_a_childs_last_message_is_what_it_did_then() -> None:
    children = ChildMeasurements()
    children.take(message("a", {FIRST_STEP: 10}, "evaluation"), {FIRST_STEP: 10.0})
    assert children.spent({FIRST_STEP: 10.0, RUNNING: 50.0}) == {FIRST_STEP: 10.0, "evaluation": 50.0}
    children.take(message("a", {FIRST_STEP: 10, "evaluation": 60}, None), {FIRST_STEP: 10.0, RUNNING: 60.0})
    assert children.spent({FIRST_STEP: 10.0, RUNNING: 65.0}) == {FIRST_STEP: 10.0, "evaluation": 60.0, RUNNING: 5.0}


def test_a_child_that_was_started_again_is_counted_with_the_first() -> None:
    children = ChildMeasurements()
    children.take(message("a", {"input": 30}, steps=5, tokens=10, memory_allocated_peak=7), {RUNNING: 30.0})
    children.take(message("b", {"input": 20}, steps=3, tokens=1, memory_allocated_peak=4), {RUNNING: 60.0})
    assert children.spent({RUNNING: 60.0}) == {"input": 50.0, FIRST_STEP: 10.0}  # 10 s until it could measure
    assert children.counted({"steps": 1.0}) == {"steps": 9.0, "tokens": 11.0, "memory_allocated_peak": 7.0}


def test_workers_at_the_same_time_share_the_rank_s_time_and_make_its_steps_together() -> None:
    children = ChildMeasurements()
    own = {RUNNING: 100.0}
    for child in "abcd":
        children.take(message(child, {"input": 40, RUNNING: 60}, steps=10, tokens=7), own)
    assert children.spent(own) == {"input": 40.0, RUNNING: 60.0}
    assert children.counted({}) == {"steps": 10, "tokens": 28}


def test_a_lost_message_loses_nothing() -> None:
    lossy, whole = ChildMeasurements(), ChildMeasurements()
    for step in range(1, 11):
        told = message("a", {"input": step, RUNNING: 2 * step}, steps=step)
        own = {RUNNING: 3.0 * step}
        whole.take(told, own)
        if step in (1, 10):
            lossy.take(told, own)
    assert lossy.spent({RUNNING: 30.0}) == whole.spent({RUNNING: 30.0}) == {"input": 10.0, RUNNING: 20.0}
    assert lossy.counted({}) == whole.counted({}) == {"steps": 10.0}


def test_processes_without_end_take_no_memory_without_end() -> None:
    children = ChildMeasurements()
    for number in range(1000):
        spent = {"input": 1, **{f"phase {number} {each}": 0.01 for each in range(100)}}
        children.take(message(str(number), spent, steps=1, **{f"n{number}": 1}), {RUNNING: 3.0 * (number + 1)})
    joined = children.spent({RUNNING: 3000.0})
    assert len(children._spent) < 100
    assert len(joined) <= MOST_NAMES
    assert joined["input"] == pytest.approx(1000)
    assert sum(joined.values()) == pytest.approx(3000)
    assert children.counted({})["steps"] == 1000
    assert len(children.counted({})) <= MOST_NAMES


NONSENSE = [
    *(None, 3, "text", [], {}, {"id": None, "spent": 4, "counted": []}),
    message("a", {"input": float("nan"), "b": -3, "c": "x", "d": True, "e": 10**400, "f": 1e300, "g": 1e300}),
    message("x" * 100_000, {"y" * 100_000: 1}, "z" * 100_000),
]


@pytest.mark.parametrize("told", NONSENSE)
def test_nonsense_changes_nothing_that_matters(told: Any) -> None:
    children = ChildMeasurements()
    children.take(told, {RUNNING: 60.0})
    joined = children.spent({RUNNING: 60.0})
    assert sum(joined.values()) == 60.0
    assert all(len(name) <= 64 for name in joined)
    assert children.counted({}) == {}


def test_a_step_with_thousands_of_metrics_arrives() -> None:
    inbox = Inbox()
    inbox.open()
    child = ChildReports(inbox.name)
    child.report(7, 10, {f"layer{number}.norm": float(number) for number in range(10_000)})
    step, total, metrics = json.loads(next(inbox.reports()))
    assert (step, total) == (7, 10)
    assert metrics["layer0.norm"] == 0
