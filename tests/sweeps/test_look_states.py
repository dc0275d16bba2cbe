"""The state of every point of a sweep, from real journals and what squeue answered."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import replace_text
from slurmopt.slurm import client
from slurmopt.slurm.queue_entry import Queue, QueueEntry, indices
from slurmopt.sweeps.status.query import sweep_states


def counts(made: Any) -> dict[str, int]:
    return sweep_states(made.folder).counts()


def test_points_that_ended_need_no_slurm(make_sweep: Callable[..., Any]) -> None:
    made = make_sweep().submitted("0-5", "7")
    for point in range(4):
        made.ended(point)
    made.ended(4, "user error", rank=0, error="ValueError: lr 0.2 is too large")
    made.ended(5, "killed", cause="out of memory")
    seen = sweep_states(made.folder)
    assert seen.counts() == {"finished": 4, "failed": 1, "killed": 1}
    assert seen.problem is None
    assert (seen.state, seen.alive) == ("failed", False)
    assert (seen.of(4).error, seen.of(5).cause) == ("ValueError: lr 0.2 is too large", "out of memory")


@pytest.mark.parametrize("told", [True, False])
def test_a_point_that_finished_stays_so_when_slurm_starts_its_array_task_again(
    make_sweep: Any, in_queue: Any, told: bool
) -> None:
    made = make_sweep().submitted("0-1", "7")
    made.ended(0, metrics={"loss": 0.5}, seconds=3.0)
    made.ended(1, "user error")
    for point in range(2):
        run = made.started(point, attempt=1)
    if told:
        run = made.folder.point(0)
        events.append(run.events, "end", attempt=1, outcome="finished", cause="finished", next=None, by="next attempt")
    in_queue(made, ("7_0", "RUNNING", "None"), ("7_1", "RUNNING", "None"))
    seen = sweep_states(made.folder, metrics=True)
    assert (seen.of(0).state, seen.of(1).state) == ("finished", "running")
    assert (seen.of(0).attempt, seen.of(0).end["metrics"], seen.of(0).seconds) == (0, {"loss": 0.5}, 3.0)
    events.append(made.folder.point(0).events, "retry", changes={})
    made.started(0, attempt=2)
    assert sweep_states(made.folder).of(0).state == "running"


def test_waiting_tasks_are_ranges_and_each_may_differ(make_sweep: Any, in_queue: Any) -> None:
    made = make_sweep(lr=list(range(1000)), seed=list(range(1000))).submitted("0-999999", "7")
    made.ended(0)
    made.started(1)
    in_queue(
        made,
        ("7_1", "RUNNING", "None"),
        ("7_2", "RUNNING", "None"),
        ("7_[3-6,8,10-499999%8]", "PENDING", "JobArrayTaskLimit"),
        ("7_[500000-999999]", "PENDING", "Priority"),
    )
    seen = sweep_states(made.folder)
    assert seen.counts() == {"finished": 1, "running": 2, "pending": 999995, "cancelled": 2}
    assert [str(seen.numbers("running")), str(seen.numbers("cancelled"))] == ["1-2", "7,9"]
    assert "as many tasks of its array run" in str(seen.of(4).detail)
    assert len(seen.points) < 5  # a million that wait cost no more than one
    assert len(seen.rest) < 10


def test_what_nobody_knows_any_more_is_lost(make_sweep: Any, in_queue: Any) -> None:
    made = make_sweep().submitted("0-5", "7")
    made.ended(0)
    made.started(1)
    in_queue(made, ("99", "RUNNING", "None"))
    assert counts(made) == {"finished": 1, "lost": 5}
    assert "never started" in str(sweep_states(made.folder).of(3).detail)


def test_a_job_of_the_same_number_is_not_the_sweeps(make_sweep: Any, in_queue: Any) -> None:
    made = make_sweep().submitted("0-5", "7")
    other = make_sweep("other").submitted("0-5", "7")
    replace_text(other.folder.events, other.folder.events.read_text().replace("slurmopt:7", "slurmopt:other"))
    in_queue(made, ("7_[0-5]", "PENDING", "Priority"))
    assert counts(made) == {"pending": 6}
    assert counts(other) == {"lost": 6}


def test_without_slurm_it_is_what_journals_say(make_sweep: Any) -> None:
    made = make_sweep().submitted("0-5", "7")
    made.ended(0)
    seen = sweep_states(made.folder)
    assert "squeue is not installed" in str(seen.problem)
    assert seen.counts() == {"finished": 1, "pending": 5}


def test_slurm_is_asked_once_for_any_number_of_points(make_sweep: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = client.ask
    monkeypatch.setattr(client, "ask", lambda argv, *rest: calls.append(argv[0]) or real(argv, *rest))
    made = make_sweep(lr=list(range(300)))
    for first in range(0, 300, 100):
        made.submitted(f"{first}-{first + 99}", str(7 + first))
    for point in range(0, 300, 7):
        made.started(point)
    sweep_states(made.folder)
    assert calls == ["squeue"]


@pytest.mark.parametrize("settled", ["by a later job", "by a cancel", "by time", "by nothing"])
def test_slurm_is_asked_for_a_lost_submission_only_while_that_may_matter(
    make_sweep: Any, monkeypatch: pytest.MonkeyPatch, settled: str
) -> None:
    calls = []
    real = client.ask
    monkeypatch.setattr(client, "ask", lambda argv, *rest: calls.append(argv[0]) or real(argv, *rest))
    made = make_sweep().submitted("0-3", "7").submitted("4-5", None)
    if settled == "by a later job":
        made.submitted("4-5", "9")
    if settled == "by a cancel":
        replace_text(made.folder.cancelled, "4-5\n")
    for point in range(6 if settled == "by a later job" else 4):
        made.ended(point)
    if settled == "by time":
        lines = [json.loads(line) for line in made.folder.events.read_text().splitlines()]
        told = [{**line, "time": line["time"] - 8 * 86400} for line in lines]
        made.folder.events.write_text("".join(f"{json.dumps(line)}\n" for line in told))
    sweep_states(made.folder)
    assert ("squeue" in calls) == (settled == "by nothing")
    calls.clear()
    sweep_states(made.folder, fresh=True)
    assert "squeue" in calls  # before something is done


def test_chunks_that_are_not_submitted_yet(make_sweep: Any, in_queue: Any) -> None:
    made = make_sweep().submitted("0-3", "7").submitted("4-5", None)
    in_queue(made, ("7_[0-3]", "PENDING", "Priority"))
    seen = sweep_states(made.folder)
    assert seen.counts() == {"pending": 4, "unsubmitted": 2}
    assert seen.state == "pending"


@pytest.mark.parametrize("journal", [b"", b"\0\xff" * 500, b'{"event": 3}\n'])
def test_points_of_an_array_task_whose_journal_is_damaged_are_not_unsubmitted(
    make_sweep: Any, in_queue: Any, journal: bytes
) -> None:
    made = make_sweep().submitted("0-5", "7", per_task=3)
    made.task(0, 0, *[(point, "finished") for point in range(3)]).events.write_bytes(journal)
    made.task(0, 1, *[(point, "finished") for point in range(3, 6)])
    in_queue(made, ("8", "PENDING", "Priority"))
    age(made.folder.events, "submitted")
    assert sweep_states(made.folder).counts() == {"finished": 3, "lost": 3}
    in_queue(made, ("7_0", "RUNNING", ""))
    assert sweep_states(made.folder).counts() == {"finished": 3, "running": 3}


def age(journal: Path, word: str) -> None:
    """Slurm was asked long after this event."""
    told = events.read(journal)
    lines = [{**one, "time": one["time"] - 600} if one["event"] == word else one for one in told]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_latest_submission_of_a_point_decides(make_sweep: Any, in_queue: Any) -> None:
    made = make_sweep().submitted("0-5", "7")
    for point in range(6):
        made.ended(point, "finished" if point < 3 else "user error", error="no")
    made.submitted("3-5", "8")
    in_queue(made, ("8_[0-2]", "PENDING", "Priority"))
    assert counts(made) == {"finished": 3, "pending": 3}
    made.ended(3, attempt=1)
    made.ended(4, "user error", attempt=1, error="again")
    seen = sweep_states(made.folder)
    assert seen.counts() == {"finished": 4, "failed": 1, "pending": 1}
    assert (seen.of(4).attempt, seen.of(4).error, seen.of(4).job) == (1, "again", "8_1")


def test_a_requeued_point_is_alive_and_then_finishes(make_sweep: Any, in_queue: Any) -> None:
    made = make_sweep().submitted("0-5", "7")
    made.ended(2, "requeue")
    in_queue(made, ("7_[2-5]", "PENDING", "BeginTime"))
    assert sweep_states(made.folder).of(2).state == "requeued"
    made.ended(2, attempt=1)
    assert sweep_states(made.folder).of(2).state == "finished"


def test_a_retry_event_does_not_change_how_it_ended(make_sweep: Any, in_queue: Any) -> None:
    made = make_sweep().submitted("0-5", "7")
    run = made.ended(0, "user error", error="no")
    events.append(run.events, "retry", changes={})
    in_queue(made, ("7_[1-5]", "PENDING", "Priority"))
    assert sweep_states(made.folder).of(0).state == "failed"


def test_points_that_share_array_tasks(make_sweep: Any, in_queue: Any) -> None:
    made = make_sweep(lr=list(range(12))).submitted("0-11", "7", per_task=3)
    made.task(0, 0, (0, "started"), (0, "finished"), (1, "started"), (1, "user error"), (2, "started"))
    made.task(0, 1, (3, "started"), (3, "requeue"))
    made.task(0, 2, (6, "started"), end="user error")
    in_queue(made, ("7_0", "RUNNING", "None"), ("7_[1,3]", "PENDING", "Priority"))
    seen = sweep_states(made.folder)
    states = {point: seen.of(point).state for point in range(12)}
    assert [states[point] for point in (0, 1, 2)] == ["finished", "failed", "running"]
    assert states[3] == "requeued"
    assert states[6] == states[7] == "failed"  # its array task ended, so they never end by themselves
    assert [states[point] for point in (9, 10, 11)] == ["pending"] * 3


def test_a_packed_point_waits_again_when_its_array_task_starts_anew(make_sweep: Any, in_queue: Any) -> None:
    made = make_sweep().submitted("0-5", "7", per_task=6)
    run = made.task(0, 0, (0, "started"), (0, "finished"), (1, "started"))
    in_queue(made, ("7_0", "RUNNING", "None"))
    assert sweep_states(made.folder).of(1).state == "running"
    again = time.time() - 30
    with run.events.open("a") as file:
        file.write(f'{{"time": {again}, "event": "attempt", "attempt": 1, "job": "7_0", "nodes": "node1"}}\n')
    assert sweep_states(made.folder).of(1).state == "requeued"
    assert sweep_states(made.folder).of(0).state == "finished"


def test_the_workers_of_a_search_share_all_points(make_sweep: Any, in_queue: Any) -> None:
    made = make_sweep().submitted("0-5", "7", tasks=2)
    made.task(0, 0, (0, "started"), (0, "finished"), (2, "started"))
    made.task(0, 1, (1, "started"), (1, "user error"))
    in_queue(made, ("7_0", "RUNNING", "None"), ("7_1", "RUNNING", "None"))
    assert counts(made) == {"finished": 1, "running": 1, "failed": 1, "pending": 3}


def test_cancelled_points_are_so_wherever_they_were(make_sweep: Any, in_queue: Any) -> None:
    made = make_sweep().submitted("0-3", "7").submitted("4-5", None)
    made.ended(0)
    made.ended(1, "killed", cause="killed")
    made.started(2)
    replace_text(made.folder.cancelled, "1-5\n")
    in_queue(made, ("7_2", "RUNNING", "None"), ("7_[3]", "PENDING", "Priority"))
    seen = sweep_states(made.folder)
    assert {point: seen.of(point).state for point in range(6)} == {
        0: "finished",
        1: "cancelled",
        2: "stopping",
        3: "cancelled",
        4: "cancelled",
        5: "cancelled",
    }


def test_a_point_that_was_cancelled_was_not_killed(make_sweep: Any) -> None:
    made = make_sweep(lr=[1, 2]).submitted("0-1", "7")
    for point in range(2):
        run = made.started(point)
        events.append(run.events, "cancel", job=f"7_{point}")
        if point == 0:
            events.append(run.events, "cancel-failed")
        events.append(run.events, "end", attempt=0, outcome="killed", cause="killed", next=None)
    assert {point: sweep_states(made.folder).of(point).state for point in range(2)} == {0: "killed", 1: "cancelled"}


@pytest.mark.parametrize(
    "text", ["", "not json\n", '{"event": "end"}\n', '["end"]\n', '{"time": 1, "event": "end", "next']
)
def test_damaged_journals_of_points_do_not_stop_a_look(make_sweep: Any, in_queue: Any, text: str) -> None:
    made = make_sweep().submitted("0-5", "7")
    run = made.ended(1)
    with run.events.open("a") as file:
        file.write(text)
    made.started(2).events.write_text(text)
    (made.folder.points / "00003" / "events.jsonl").mkdir(parents=True)
    (made.folder.points / "a-foreign-hand").mkdir()
    in_queue(made, ("7_[0,2-5]", "PENDING", "Priority"))
    seen = sweep_states(made.folder)
    assert sum(seen.counts().values()) == 6


def test_the_brackets_of_array_jobs() -> None:
    assert [list(span) for span in indices("0-2,7%3")] == [[0, 1, 2], [7]]
    assert [list(span) for span in indices("0-6:2")] == [[0, 2, 4, 6]]
    entry = QueueEntry("7_[3-5,9%2]", "PENDING", "", "", None, 0, None, 0, "", "")
    whole = QueueEntry("8", "CANCELLED", "", "", None, 0, None, 0, "", "")
    queue = Queue({one.job_id: one for one in (entry, whole)})
    assert [queue.get(f"7_{task}") is entry for task in (2, 3, 5, 6, 9)] == [False, True, True, False, True]
    assert "7_4" in queue
    assert queue.get("8_5") is whole
    assert queue.get("8_x") is None
    assert list(queue) == ["7_[3-5,9%2]", "8"]
