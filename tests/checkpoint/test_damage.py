"""Every kind of damage to the newest checkpoint: it is named, and the one before it is restored by both ranks."""

from __future__ import annotations

import json
import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from chaos_runs.checkpoints.damages import DAMAGES, Tier, restored, saved
from chaos_runs.checkpoints.ranks import Plan, Training


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A run of two ranks with four checkpoints."""
    config = {"shared": {"every": 1, "keep": 4}, "incremental": False}
    return saved(tmp_path_factory.mktemp("damage") / "runs" / "demo" / "one", config)


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_to_the_newest_is_named_and_the_one_before_it_restored(whole: Plan, tmp_path: Path, kind: str) -> None:
    run = tmp_path / "runs" / "demo" / "one"
    shutil.copytree(whole.folder, run)
    tier = Tier(run / "checkpoints", whole.folder / "checkpoints")
    newest = tier.commits[-1]
    DAMAGES[kind](tier, newest, random.Random(kind))
    training = restored(whole, run)
    expected = [commit["step"] for commit in tier.commits if tier.whole(commit)][-1]
    assert [(said["step"], said["wrong"]) for said in training.said("restored")] == [(expected, "")] * 2
    assert any(name in training.errors() for name in tier.names(newest))
    journal = [json.loads(line) for line in (run / "events.jsonl").read_bytes().splitlines()]
    named = [event for event in journal if event["event"] == "checkpoint-damaged"]
    assert {*tier.names(newest)} & {event["checkpoint"] for event in named}
    assert all(event["tier"] == "shared" and event["reason"] and "\n" not in event["reason"] for event in named)


def test_where_nothing_is_whole_the_training_does_not_start_over(whole: Plan, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "demo" / "one"
    shutil.copytree(whole.folder, run)
    for payload in run.glob("checkpoints/step-*/*/rank-00001.bin"):
        payload.unlink()
    training = restored(whole, run)
    assert training.wait() == [1, 1]
    assert "nothing that was saved can be restored" in training.errors()


def test_a_training_that_goes_on_from_an_older_one_keeps_what_it_saves(whole: Plan, tmp_path: Path) -> None:
    """After a fall back new checkpoints have lower steps than the damaged one, and must not go because of it."""
    run = tmp_path / "runs" / "demo" / "one"
    shutil.copytree(whole.folder, run)
    tier = Tier(run / "checkpoints", whole.folder / "checkpoints")
    for commit in tier.commits[1:]:
        tier.payloads(commit)[0].unlink()
    config = {"shared": {"every": 1, "keep": 1}, "incremental": False}
    plan = replace(whole, folder=run, attempt=1, steps=2, config=config)
    assert Training(plan).wait() == [0, 0]
    again = restored(plan, run)
    assert {said["step"] for said in again.said("restored")} == {2}, again.errors()


def test_a_damaged_record_of_what_others_refer_to_costs_neither_those_nor_the_next_saves(tmp_path: Path) -> None:
    config = {"shared": {"every": 1, "keep": 2}, "incremental": True}
    plan = saved(tmp_path / "runs" / "demo" / "one", config)
    tier = Tier(plan.folder / "checkpoints", plan.folder / "checkpoints")
    first = tier.commits[0]
    assert first["step"] == 1, "it is kept because the others refer to it"
    tier.record(first).write_bytes(b"")
    going_on = Training(replace(plan, attempt=1, steps=8))
    assert going_on.wait() == [0, 0], going_on.errors()
    assert [said["step"] for said in going_on.said("durable", 0)] == [5, 6, 7, 8], going_on.errors()
    again = restored(replace(plan, attempt=1), plan.folder)
    assert [(said["step"], said["wrong"]) for said in again.said("restored")] == [(8, "")] * 2
