"""`slurmopt history`: what it tells of runs of all kinds."""

from __future__ import annotations

import json

import pytest
from json_answer import data_of

from slurmopt.cli import main
from slurmopt.commands import history as command
from slurmopt.runs.history.timeline import Entry

T = 1_790_000_000.0


def told(capsys, *words: str) -> dict:
    assert main(["history", "--json", *words]) == 0
    answer = data_of(capsys.readouterr().out)
    assert isinstance(answer, dict)
    return answer


def page(capsys) -> str:
    assert main(["history"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    return shown


def flat(text: str) -> str:
    """Without line breaks and indents: where a line was wrapped does not matter."""
    return " ".join(text.split())


def launched(make_run):
    made = make_run()
    made.folder.events.unlink()  # the fixture's own `created` is of today
    made.event("created", time=T, name="mine", id="one")
    return made.event("submitting", time=T, token="t7", backend="sbatch").event(
        "submitted", time=T + 0.5, token="t7", backend="sbatch", job="7"
    )


def beat(made, attempt: int, rank: int, granted: float, **fields) -> None:
    """A rank that started 1 s after the nodes were granted, was checked after 3, met the others after 4."""
    phases = {"starting": granted + 1, "checking": granted + 1.5, "waiting": granted + 3, "running": granted + 4}
    phases |= fields.pop("phases", {})
    latest = fields.pop("latest")
    made.beat(attempt, rank, phases=phases, started=granted + 1, **fields)
    path = made.folder.heartbeat(attempt, rank)
    path.write_text(json.dumps({**json.loads(path.read_text()), "time": latest}))


@pytest.fixture
def survivor(make_run):
    """Its first attempt reaches the time limit, the second dies with its node, the third finishes."""
    made = launched(make_run)
    (made.folder.config).write_text("resources: {gpus_per_node: 4}\n")
    made.event("attempt", time=T + 10, attempt=0, job="7", nodes="node[1-2]")
    for rank in (0, 1):
        first = {"first_step": 1, "first_step_time": T + 20, "step": 100, "step_time": T + 119}
        beat(made, 0, rank, T + 10, latest=T + 129, **first)
    made.event("signal", time=T + 119, attempt=0, signal="USR1")
    made.end(
        "requeue", 0, time=T + 130, cause="time limit", next="requeue", reason="it comes back after: time limit",
        step=100, durable=100,
    )  # fmt: skip
    made.event("requeue", time=T + 130.2, attempt=0, job="7")
    made.event("attempt", time=T + 141.2, attempt=1, job="7", nodes="node[1-2]")
    made.event("restored", time=T + 149.2, attempt=1, step=100, tier="shared", checkpoint="step-100")
    for rank, last in ((0, 150), (1, 150)):
        first = {"first_step": 101, "first_step_time": T + 151.2, "step": last, "step_time": T + 200.2}
        beat(made, 1, rank, T + 141.2, latest=T + 205 - rank, phases={"restoring": T + 147.2}, **first)
    made.event("attempt", time=T + 265, attempt=2, job="7", nodes="node[1,3]")
    made.end(
        "killed", 1, time=T + 265.1, cause="node failure", next="slurm", node="node2", error="node2 died", step=150,
        durable=140, by="next attempt", reason="it comes back after: node failure; 9 more such ends are allowed",
    )  # fmt: skip
    made.event("node-excluded", time=T + 265.2, attempt=2, nodes="node2", until=T + 20000, reason="it died")
    made.event("restored", time=T + 273, attempt=2, step=140, tier="s3", checkpoint="step-140")
    for rank in (0, 1):
        beat(made, 2, rank, T + 265, latest=T + 400, first_step=141, first_step_time=T + 275, step=200)
    return made.end("finished", 2, time=T + 401, cause="finished", next=None, step=200, durable=200, reason="finished")


def test_steps_and_times_lost_are_reckoned_as_defined(survivor, capsys) -> None:
    answer = told(capsys)
    attempts = answer["attempts"]
    assert [one["cause"] for one in attempts] == ["time limit", "node failure", "finished"]
    assert [(one["base"], one["last_step"], one["steps_done"]) for one in attempts] == [
        (0, 100, 100),
        (100, 150, 50),
        (140, 200, 60),
    ]
    assert [one["steps_lost"] for one in attempts] == [0, 10, 0]
    # From the submission; from the requeue; from the last sign of life of an attempt that died without a word.
    assert [one["queue_seconds"] for one in attempts] == pytest.approx([9.5, 11, 60])
    assert [one["seconds"] for one in attempts] == pytest.approx([120, 63.8, 136])
    assert attempts[1]["restart"] == pytest.approx(
        {"shell": 1, "check": 2, "rendezvous": 1, "setup": 2, "restore": 2, "first step": 2}
    )
    assert attempts[1]["restart_seconds"] == pytest.approx(10)
    assert attempts[0]["restart"] == pytest.approx({"shell": 1, "check": 2, "rendezvous": 1, "first step": 6})
    assert attempts[2]["restored_from"] == "s3"


def test_the_sums_of_a_run(survivor, capsys) -> None:
    totals = told(capsys)["totals"]
    assert totals["causes"] == {"time limit": 1, "node failure": 1, "finished": 1}
    assert (totals["steps_done"], totals["steps_lost"], totals["last_step"]) == (210, 10, 200)
    assert totals["steps_per_attempt"] == 70
    assert totals["wall_seconds"] == pytest.approx(401)
    assert totals["queue_seconds"] == pytest.approx(80.5)
    assert totals["restore_seconds"] == pytest.approx(2 + 4)  # the third does not tell its setup apart
    assert totals["restart_seconds"] == pytest.approx(30)
    spent = 2 * (120 + 63.8 + 136) / 3600
    lost = 2 * (30 + 10 * 49 / 49) / 3600  # the second attempt made 49 steps after its first in 49 s
    assert totals["node_hours"] == pytest.approx(spent)
    assert totals["node_hours_lost"] == pytest.approx(lost)
    assert totals["gpu_hours"] == pytest.approx(4 * spent)
    assert totals["efficiency"] == pytest.approx(1 - lost / spent)


def test_gpus_are_counted_as_each_attempt_had_them(survivor, capsys) -> None:
    before = told(capsys)["totals"]["gpu_hours"]
    survivor.event("retry", changes={"resources.gpus_per_node": [2, 4]})
    assert told(capsys)["totals"]["gpu_hours"] == pytest.approx(before / 2)


def test_the_page_tells_it_in_order_on_80_columns(survivor, capsys) -> None:
    shown = page(capsys)
    order = (
        "launched",
        "attempt 0 on node[1-2], job 7, after 9.5s in the queue",
        "ran 2m00s, steps 0 → 100",
        "ended: time limit",
        "no step lost; it requeues itself; it comes back after: time limit",
        "attempt 1 on node[1-2], job 7, after 11s in the queue",
        "steps 100 → 150 (restored from shared)",
        "first new step after 10s: shell 1.0s, check 2.0s, rendezvous 1.0s, setup 2.0s, restore 2.0s",
        "ended: node failure on node2: node2 died",
        "10 steps lost; Slurm brings it back;",
        "told by next attempt",
        "attempt 2",
        "node2 is left out until",
        "3: time limit 1, node failure 1, finished 1",
        "210 done, 10 of them lost; 70 an attempt",
        "GPU-hours) lost: efficiency 87.5%",
    )
    places = [flat(shown).find(line) for line in order]
    assert -1 not in places, [line for line, place in zip(order, places, strict=True) if place < 0]
    assert places[:-3] == sorted(places[:-3])


def test_what_happens_beside_the_attempts_is_told(make_run, capsys) -> None:
    made = launched(make_run)
    made.event("attempt", time=T + 10, attempt=0, job="7", nodes="node1")
    made.event("checkpoint-damaged", attempt=0, checkpoint="step-9", tier="shared", reason="a checksum differs")
    made.event("checkpoint-failed", attempt=0, step=9000, tier="s3", checkpoint="step-9000", reason="Access Denied")
    made.event("hang", attempt=0, rank=3, node="node2", step=7120, seconds=300.0)
    made.end("killed", 0, time=T + 20, cause="hang", next="requeue", step=7120)
    made.event("requeue-refused", attempt=0, job="7", reason="Requeue is not allowed")
    made.event("retry", changes={"resources.memory": ["1G", "2G"]})
    made.submitted("8").attempt(1, "8").event("cancel", job="8")
    made.event("notify-failed", attempt=1, how="command", reason="it ended with status 1")
    shown = flat(page(capsys))
    for line in (
        "the checkpoint step-9 on shared was damaged and set aside: a checksum differs",
        "the checkpoint of step 9,000 was not saved to s3: Access Denied",
        "hung: rank 3 on node2 was the first to stop after step 7,120; no step was made for 5m00s",
        "Slurm refused to requeue job 7: Requeue is not allowed",
        "you continued it, with resources.memory 1G → 2G; budgets count from here",
        "submitted again as job 8",
        "you cancelled it",
        "could not notify its owner (command): it ended with status 1",
    ):
        assert line in shown
    words = [event["event"] for event in told(capsys)["events"]]
    assert words[:2] == ["checkpoint-damaged", "checkpoint-failed"]
    assert words[2:] == ["requeue-refused", "retry", "submitted", "cancel", "notify-failed"]


@pytest.mark.parametrize(("job", "by"), [("7", {"by": "batch shell"}), ("local-7", {})])
def test_what_slurm_was_not_asked_is_not_said_to_be_refused_by_it(make_run, capsys, job: str, by: dict) -> None:
    made = launched(make_run).event("attempt", time=T + 10, attempt=0, job=job, nodes="node1")
    made.event("requeue-refused", attempt=0, job=job, reason="something else is in the place of the run", **by)
    shown = flat(page(capsys))
    assert "no further attempt was started: something else is in the place of the run" in shown
    assert "refused" not in shown


def test_a_run_that_is_alive_and_one_that_has_not_begun(make_run, capsys) -> None:
    made = make_run().submitted()
    assert told(capsys)["attempts"] == []
    assert "launched" in page(capsys)
    made.attempt().beat(step=5, first_step=1, first_step_time=T)
    (attempt,) = told(capsys)["attempts"]
    assert (attempt["ended"], attempt["cause"], attempt["last_step"], attempt["steps_lost"]) == (None, None, 5, None)
    assert "has run" in page(capsys)


def test_attempts_that_never_came_to_a_step_lose_none_and_cost_their_time(make_run, capsys) -> None:
    """The steps of the attempt before are lost only where the next one that trains goes on from less."""
    made = launched(make_run)
    made.event("attempt", time=T + 10, attempt=0, job="7", nodes="node1")
    beat(made, 0, 0, T + 10, latest=T + 100, first_step=1, first_step_time=T + 20, step=50, step_time=T + 69)
    made.end("killed", 0, time=T + 100, cause="killed", next="requeue", step=50, durable=40)
    made.event("attempt", time=T + 110, attempt=1, job="7", nodes="node1")
    made.end("infrastructure", 1, time=T + 120, cause="infrastructure", next="requeue", step=None)
    made.event("attempt", time=T + 130, attempt=2, job="7", nodes="node1")
    made.event("restored", time=T + 135, attempt=2, step=40, tier="shared")
    beat(made, 2, 0, T + 130, latest=T + 180, first_step=41, first_step_time=T + 140, step=80, step_time=T + 179)
    made.end("user error", 2, time=T + 180, cause="user error", next=None, step=80, durable=70)
    answer = told(capsys)
    assert [one["steps_lost"] for one in answer["attempts"]] == [10, None, 10]
    lost = (10 + 10 * 1) + 10 + (10 + 10 * 1)
    assert answer["totals"]["node_hours_lost"] * 3600 == pytest.approx(lost)


def test_a_journal_of_before_causes_were_noted(make_run, capsys) -> None:
    make_run().submitted().attempt().end("user error", exit_code=1, rank=1, error="ValueError: no")
    assert told(capsys)["totals"]["causes"] == {"user error": 1}
    assert "ended: user error in rank 1: ValueError: no" in flat(page(capsys))


def test_torn_and_hostile_lines_are_survived(survivor, capsys) -> None:
    with open(survivor.folder.events, "ab") as file:
        file.write(
            b'{"event": "end", "attempt": 2, "by": [1], "cause": {}}\n'
            b'{"event": "hang", "attempt": 2, "rank": [], "step": "x", "seconds": 1e400, "node": {"a": 1}}\n'
            b'{"event": "node-excluded", "attempt": "2", "nodes": [1, {}], "until": 1e300, "time": -1e300}\n'
            b'{"event": "retry", "changes": {"a": 1, "b": [1, 2, 3], "resources.gpus_per_node": []}}\n'
            b'{"event": "attempt", "attempt": 9, "time": 1e308, "nodes": "node[1-99999999]"}\n'
            b'{"event": "restored", "attempt": 9, "step": ' + b"9" * 400 + b"}\n"
            b'{"event": "end", "attempt": 9, "step": -5, "next": {}, "time": "soon", "error": "\\u001b[2J"}\n'
            b'{"event": "cancel", "att'
        )
    survivor.folder.heartbeat(9, 0).parent.mkdir()
    survivor.folder.heartbeat(9, 0).write_text(
        '{"rank": 0, "world_size": 1, "node": "n", "pid": 1, "phases": {"checking": "x", "waiting": 1e400}, '
        '"step": [], "first_step": -1e300, "first_step_time": {}, "started": "now"}'
    )
    assert len(told(capsys)["attempts"]) == 4
    assert "\x1b" not in page(capsys)


def test_thousands_of_attempts(make_run, capsys) -> None:
    made = launched(make_run)
    lines = []
    for number in range(3000):
        lines.append({"time": T + number * 100, "event": "attempt", "attempt": number, "job": "7", "nodes": "n[1-4]"})
        lines.append({"time": T + number * 100 + 90, "event": "end", "attempt": number, "outcome": "requeue",
                      "cause": "preemption", "next": "slurm", "step": number + 1, "durable": number + 1})  # fmt: skip
        lines += [{"time": T, "event": "checkpoint", "attempt": number, "step": number + 1, "tier": "shared"}] * 5
    with open(made.folder.events, "a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    totals = told(capsys)["totals"]
    assert totals["causes"] == {"preemption": 3000}
    assert totals["queue_seconds"] == pytest.approx(2999 * 10, abs=1)


def test_an_attempt_that_waits_for_a_health_check_says_for_what(make_run, capsys) -> None:
    run = make_run("mine", "one").submitted("7").attempt(0)
    run.event("waits", attempt=0, rank=0, node="n1", until=1795401985, reason="/fsx: 0.4 GiB free, less than 1.0 GiB")
    assert main(["history", "mine/one"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "n1 waits until" in shown
    assert "/fsx: 0.4 GiB free, less than 1.0 GiB" in shown


def test_all_that_the_json_has_is_documented(survivor, capsys) -> None:
    answer = told(capsys)
    documented = str(command.__doc__).split()
    for keys in (answer, answer["attempts"][0], answer["totals"]):
        assert [key for key in keys if key not in documented] == []
    assert all(f"`{key}`" in str(command.__doc__) for key in answer["events"][0])
    assert set(answer["attempts"][1]["restart"]) <= {"shell", "check", "rendezvous", "setup", "restore", "first step"}
    assert Entry.__doc__
