"""What `slurmopt status` tells of a run's checkpoints, from journals of all kinds."""

from __future__ import annotations

import json
import re
import time

import pytest
from json_answer import data_of

from slurmopt.cli import main
from slurmopt.run_folder import events
from slurmopt.runs.status.query import gather

FIRST, SECOND, THIRD = (f"step-{step:08d}/a0000-0000000{step}" for step in (1, 2, 3))


def shown(capsys, *words: str) -> str:
    """What is printed, with the seconds that went by since a moment ago as N."""
    assert main(["status", *words]) == 0
    return re.sub(r"\b\d+s ago", "Ns ago", capsys.readouterr().out)


def as_json(capsys) -> dict:
    return data_of(shown(capsys, "--json"))[0]


def saved(made, step: int, tier: str, name: str, **more):
    return made.event("checkpoint", attempt=0, step=step, tier=tier, checkpoint=name, bytes=10, seconds=0.5, **more)


def failed(made, step: int | None, tier: str | None, reason: str = "no space left"):
    return made.event("checkpoint-failed", attempt=0, step=step, tier=tier, reason=reason)


def test_the_newest_durable_one_of_each_tier_with_its_age(make_run, capsys) -> None:
    made = make_run().submitted().attempt()
    now = time.time()
    saved(made, 1000, "s3", FIRST, time=now - 7200)
    saved(made, 1000, "scratch", FIRST)
    saved(made, 1200, "scratch", SECOND, time=now - 180000)
    page = shown(capsys)
    assert "  checkpoint step 1,200 on scratch 2d02h ago; step 1,000 on s3 2h00m ago\n" in page
    assert "shared" not in page
    status = as_json(capsys)
    assert status["checkpoints"] == {
        "scratch": {"step": 1200, "time": pytest.approx(now - 180000), "checkpoint": SECOND},
        "s3": {"step": 1000, "time": pytest.approx(now - 7200), "checkpoint": FIRST},
    }
    assert (status["checkpoint_failures"], status["checkpoints_damaged"], status["restored"]) == ([], [], None)


def test_a_run_without_checkpoints_says_nothing_of_them(make_run, capsys) -> None:
    make_run().submitted().attempt()
    assert "checkpoint " not in shown(capsys)
    assert as_json(capsys)["checkpoints"] == {}


def test_what_failed_since_a_tiers_last_success_is_one_line(make_run, capsys) -> None:
    made = make_run().submitted().attempt()
    failed(made, 1, "s3", "an old story")
    saved(made, 1, "s3", FIRST)
    failed(made, 2, "s3")
    failed(made, 1300, "s3", "the server does not answer\x1b[2J")
    saved(made, 3, "scratch", THIRD)  # another tier's success is no success of this one
    page = shown(capsys)
    assert "the last 2 saves to s3 failed, the latest at step 1,300 Ns ago: the server does not answer" in page
    assert "an old story" not in page
    assert "\x1b" not in page
    (failure,) = as_json(capsys)["checkpoint_failures"]
    assert (failure["tier"], failure["count"], failure["step"]) == ("s3", 2, 1300)
    saved(made, 4, "s3", THIRD)
    assert "saves to s3" not in shown(capsys)
    assert as_json(capsys)["checkpoint_failures"] == []


def test_a_failure_before_any_tier_is_told_until_something_is_saved(make_run, capsys) -> None:
    made = make_run().submitted().attempt()
    failed(made, 7, None, "no space for the arena")
    page = shown(capsys)
    assert "  checkpoint the last save failed at step 7 Ns ago: no space for the arena" in page
    saved(made, 8, "scratch", FIRST)
    assert "arena" not in shown(capsys)


def test_a_damaged_one_is_told_and_no_longer_counts_as_durable(make_run, capsys) -> None:
    made = make_run().submitted().attempt()
    for step, name in ((1, FIRST), (2, SECOND)):
        for tier in ("shared", "s3"):
            saved(made, step, tier, name)
    made.event("checkpoint-damaged", attempt=1, checkpoint=SECOND, tier="shared", reason="segment 3 of rank 1 differs")
    made.event("restored", attempt=1, step=2, tier="s3", checkpoint=SECOND)
    page = shown(capsys)
    assert "step 1 on shared Ns ago; step 2 on s3 Ns ago" in page
    assert f"{SECOND} on shared was damaged and set aside Ns ago: segment 3 of rank 1 differs" in page
    assert "went on from step 2 on s3 Ns ago" in page
    status = as_json(capsys)
    assert [damaged["checkpoint"] for damaged in status["checkpoints_damaged"]] == [SECOND]
    assert (status["restored"]["step"], status["restored"]["tier"]) == (2, "s3")
    made.event("checkpoint-damaged", checkpoint=FIRST, tier="shared", reason="gone")
    page = shown(capsys)
    assert f"{FIRST} on shared was damaged and set aside Ns ago, and 1 before: gone" in page
    assert "on shared Ns ago;" not in page


def test_what_was_pruned_is_no_longer_durable(make_run, capsys) -> None:
    made = make_run().submitted().attempt()
    for step, name in ((1, FIRST), (2, SECOND), (3, THIRD)):
        saved(made, step, "shared", name)
    made.event("checkpoint-pruned", tier="s3", checkpoints=[THIRD])
    assert "step 3 on shared" in shown(capsys)
    made.event("checkpoint-pruned", tier="shared", checkpoints=[THIRD, SECOND])
    assert "step 1 on shared" in shown(capsys)
    made.event("checkpoint-pruned", tier="shared", checkpoints=[FIRST])
    assert as_json(capsys)["checkpoints"] == {}


def test_a_run_that_ended_still_shows_where_its_checkpoints_are(make_run, capsys) -> None:
    made = make_run().submitted().attempt()
    saved(made, 500, "shared", FIRST)
    made.end("finished")
    assert "step 500 on shared" in shown(capsys)


HOSTILE = [
    '{"event": "checkpoint", "step": "many", "tier": "shared"}',
    '{"event": "checkpoint", "step": true, "tier": "s3", "checkpoint": {}}',
    '{"event": "checkpoint", "step": 1e400, "tier": "s3"}',
    '{"event": "checkpoint", "step": ' + "9" * 5000 + ', "tier": "s3"}',
    '{"event": "checkpoint", "step": 5, "tier": ["s3"]}',
    '{"event": "checkpoint", "step": 5, "tier": "\\u001b[2J"}',
    '{"event": "checkpoint", "ti',
    '{"event": "checkpoint-pruned", "tier": "shared", "checkpoints": [{"a": 1}, null, ["x"]]}',
    '{"event": "checkpoint-pruned", "tier": "shared", "checkpoints": 7}',
    '{"event": "checkpoint-damaged", "tier": {}, "checkpoint": [], "reason": 7, "time": "soon"}',
    '{"event": "checkpoint-damaged", "checkpoint": null, "tier": "shared"}',
    '{"event": "restored", "step": [], "tier": "\\ud800"}',
    '{"event": "restored", "step": -1e308, "tier": true, "time": 1e400}',
    '{"event": "checkpoint-failed", "reason": {"a": "\\u001b[2J"}, "tier": "mars", "step": NaN}',
    '{"note": {"event": "checkpoint", "tier": "shared"}}',
    '{"note": {"event": "checkpoint", "tier": "shared"}, "event": "attempt"}',
    '{"event": "checkpoint", "tier": "shared", "event": ["list"]}',
    "[" * 100_000 + '"event": "checkpoint", "tier": "shared"',
]


@pytest.mark.parametrize("line", HOSTILE)
def test_a_hostile_line_hides_nothing_and_crashes_nothing(make_run, capsys, line: str) -> None:
    made = make_run().submitted().attempt()
    saved(made, 42, "shared", FIRST)
    with open(made.folder.events, "ab") as file:
        file.write(line.encode() + b"\n")
    for words in ([], ["--all"], ["--all", "--json"]):
        assert "\x1b" not in shown(capsys, *words)
    assert "step 42 on shared" in shown(capsys)
    assert as_json(capsys)["checkpoints"]["shared"]["step"] == 42


def test_a_failure_of_wrong_types_is_still_a_failure(make_run, capsys) -> None:
    make_run().submitted().attempt().event("checkpoint-failed", step={}, tier="s3", reason=[1], time="soon")
    assert "the last save to s3 failed: no reason given" in shown(capsys)


def test_saving_often_neither_slows_the_table_of_all_runs_nor_hides_what_slurm_says(make_run, capsys) -> None:
    """A run's state hangs on its own events: those of its checkpoints are not even parsed for it."""
    made = make_run().submitted().attempt()
    (before,), _ = gather([made.folder])
    parsed = []
    with pytest.MonkeyPatch.context() as patch:
        real = json.loads
        patch.setattr(events.json, "loads", lambda line: parsed.append(line) or real(line))
        saved(made, 1, "shared", FIRST, time=time.time() + 100)
        (after,), _ = gather([made.folder])
    assert after.journal.latest == before.journal.latest
    assert not [line for line in parsed if b"checkpoint" in line]
    (status,) = data_of(shown(capsys, "--all", "--json"))
    assert [status[key] for key in ("checkpoints", "checkpoint_failures", "checkpoints_damaged", "restored")] == [
        None
    ] * 4


def test_a_long_journal_is_not_parsed_whole(make_run, capsys, monkeypatch) -> None:
    made = make_run().submitted().attempt()
    saved(made, 1, "s3", FIRST)
    lines = [
        json.dumps(
            {"time": 1.0, "event": "checkpoint", "step": step, "tier": "scratch", "checkpoint": f"step-{step}/a"}
        )
        for step in range(2, 5000)
    ]
    with open(made.folder.events, "a") as file:
        file.write("\n".join(lines) + "\n")
    parsed = []
    real = json.loads
    monkeypatch.setattr(events.json, "loads", lambda line: parsed.append(line) or real(line))
    assert "step 4,999 on scratch" in shown(capsys)
    assert len(parsed) < 100
    monkeypatch.undo()
