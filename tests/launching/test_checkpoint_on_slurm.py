"""Restored after a requeue, on a real Slurm with two nodes: the quickstart ends as if nothing had happened."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from private_cluster import wait_until

from slurmopt.run_folder import events

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed")
HELD = '''
"""The quickstart's training; its first attempt takes no step beyond `hold_at` before it is told to stop, or killed."""
import time

from slurmopt import current_run, stop_requested
from slurmopt.examples import char_transformer


class Held(char_transformer.Training):
    def update(self, windows):
        while self.step == self.config.hold_at and current_run().attempt == 0:
            if stop_requested() and not self.config.deaf:
                break
            time.sleep(0.05)
        super().update(windows)


def train(config):
    char_transformer.Training = Held
    return char_transformer.train(config)
'''
TINY = (
    "+experiment=quickstart", "task._target_=held.train", "train.steps=40", "train.batch=4",
    "model={layers:1,width:32,heads:4,context:16,dropout:0.1}", "checkpoint.shared.every=10", "+hold_at=23",
    "resources.nodes=2", "resources.tasks_per_node=1",
)  # fmt: skip


def journal(answer: dict[str, Any], event: str) -> list[dict[str, Any]]:
    return [each for each in events.read(Path(answer["run"]) / "events.jsonl") if each["event"] == event]


def result(answer: dict[str, Any]) -> Any:
    return json.loads((Path(answer["run"]) / "result.json").read_text())["result"]


def test_a_run_is_restored_after_the_time_limits_signal_and_after_an_administrators_requeue(project: Any) -> None:
    """Three runs at the same time: one told by the signal ahead of its limit of a minute, one that an administrator
    requeues while it listens to nobody, and one that nothing happens to."""
    (project.path / "held.py").write_text(HELD)
    words = {
        "told": ("+deaf=false", "resources.time=1m", "restart.lead=45s"),
        "requeued": ("+deaf=true", "resources.time=15m"),
        "undisturbed": ("+deaf=false", "resources.time=15m", "hold_at=-1"),
    }
    runs = {name: project.submit(*TINY, *words[name], f"launch.name={name}") for name in words}
    wait_until(lambda: any(e["step"] == 20 for e in journal(runs["requeued"], "checkpoint")), 120, "step 20 is durable")
    project.cluster.run(["scontrol", "requeue", runs["requeued"]["job_ids"][0]])
    for answer in runs.values():
        status = project.wait_for(answer, "finished", "failed", timeout=240)
        assert status["state"] == "finished", status
        assert status["job"] == answer["job_ids"][0]
    assert journal(runs["undisturbed"], "restored") == []
    assert [(e["attempt"], e["step"], e["tier"]) for e in journal(runs["requeued"], "restored")] == [(1, 20, "shared")]
    told = journal(runs["told"], "restored")
    assert told[0]["attempt"] == 1
    assert 1 <= told[0]["step"] <= 24  # within a limit of a minute the signal may come at once
    assert len([event for event in journal(runs["told"], "signal") if event["attempt"] == 0]) >= 1
    assert result(runs["told"]) == result(runs["requeued"]) == result(runs["undisturbed"])
