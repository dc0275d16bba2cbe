"""What the folders of earlier runs tell of failures, of saves and of how right the formulas were."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from json_answer import data_of

from slurmopt.config.checkpoint import Checkpoint
from slurmopt.config.resources import Resources
from slurmopt.config.schema import Settings
from slurmopt.estimates.failures import history
from slurmopt.estimates.past_runs import scored
from slurmopt.launching.failure_rate import with_known_rate
from slurmopt.run_folder import events
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder

HOUR = 3600.0
CONFIG = {
    "task": {"command": ["python", "train.py"]},
    "launch": {"name": "past"},
    "resources": {"nodes": 2, "gpus_per_node": 2, "gpu_type": "h100"},
    "plan": {"model": "qwen2.5-0.5b", "sequence": 1024, "global_batch": 16, "network": 400.0},
}


def past_run(folder: Path, number: int, causes: list[str], save: float = 3.0, **config: object) -> RunFolder:
    """The folder of a run of two nodes: for each cause an attempt of two hours with four saves, ten minutes apart."""
    run = RunFolder(folder / "past" / f"20261101-00000{number}-abcd")
    run.make()
    run.config.write_text(yaml.safe_dump({**CONFIG, **config}))
    start = 1.7e9
    for attempt, cause in enumerate(causes):
        began, ended = start, start + 2 * HOUR
        lines = [
            {"event": "attempt", "attempt": attempt, "job": "7", "nodes": "n[1-2]", "time": began},
            *({"event": "checkpoint", "attempt": attempt, "step": step, "tier": "shared", "time": began + step}
              for step in (10, 20, 30, 40)),
            {"event": "end", "attempt": attempt, "cause": cause, "outcome": "killed", "time": ended},
        ]  # fmt: skip
        for line in lines:
            events.append(run.events, **line)  # type: ignore[arg-type]
        run.attempt_logs(attempt).mkdir(parents=True)
        for rank in range(4):
            beat = Heartbeat(rank=rank, world_size=4, node=f"n{1 + rank // 2}", pid=1, started=began)
            beat.first_step, beat.first_step_time = 0, began + 300
            beat.step, beat.step_time = 40, began + 300 + 40 * 2.0
            beat.spent = {"checkpoint": 4 * save}
            beat.counted = {"memory_reserved_peak": 20 * 2**30 + rank}
            path = run.heartbeat(attempt, rank)
            path.parent.mkdir(parents=True, exist_ok=True)
            beat.write(path)
        start = ended + 600
    return run


def test_failures_without_notice_make_a_rate(tmp_path: Path) -> None:
    past_run(tmp_path, 1, ["node failure", "time limit", "hang", "finished"])
    past_run(tmp_path, 2, ["infrastructure", "preemption", "user error"])
    found = history(tmp_path)
    assert found.failures == 3
    assert found.node_hours == pytest.approx(7 * 2 * 2, rel=0.01)
    assert found.rate is not None
    assert found.rate.mtbf_of_node == pytest.approx(28 * HOUR / 3, rel=0.01)
    assert found.rate.restart == pytest.approx(900)
    assert found.rate.blocked == pytest.approx(3.0)


def test_two_failures_are_no_rate(tmp_path: Path) -> None:
    past_run(tmp_path, 1, ["node failure", "killed", "finished"])
    assert history(tmp_path).failures == 2
    assert history(tmp_path).rate is None


def test_failures_without_a_usable_time_are_none(tmp_path: Path) -> None:
    run = past_run(tmp_path, 1, ["finished"])
    for attempt in range(1, 9):
        for when in (1e308, -1e308, "x", 1.7e9):
            events.append(run.events, event="attempt", attempt=attempt, nodes="n1")  # type: ignore[arg-type]
            line = {"time": when, "event": "end", "attempt": attempt, "cause": "killed"}
            run.events.write_text(f"{run.events.read_text()}{json.dumps(line)}\n")
    events.append(run.events, event="checkpoint", attempt=[1], step={"a": 1})  # type: ignore[arg-type]
    assert history(tmp_path).failures == 0


def test_no_runs_and_no_folder_tell_nothing(tmp_path: Path) -> None:
    assert history(tmp_path).rate is None
    assert history(tmp_path / "missing").failures == 0


def test_damaged_journals_are_left_out(tmp_path: Path) -> None:
    past_run(tmp_path, 1, ["node failure"] * 3 + ["finished"])
    damaged = past_run(tmp_path, 2, ["node failure"])
    damaged.events.write_bytes(b'\x00\xff{"event": "end", "attempt": "x", "cause": 3}\n[1]\n')
    assert history(tmp_path).failures == 3


def test_a_run_with_a_plan_is_scored(tmp_path: Path) -> None:
    found = scored(past_run(tmp_path, 1, ["finished"]))
    assert found is not None
    assert found.peak == 20 * 2**30 + 3
    assert found.step == pytest.approx(2.0)
    assert found.shape.nodes == 2
    assert found.memory_ratio is not None
    estimated = found.shape.memory.peak.middle if found.shape.memory else 0
    assert 20 * 2**30 < found.memory_ratio * estimated < 21.5 * 2**30, "with a context, which torch does not count"


@pytest.mark.parametrize(
    "plan",
    [
        None, {}, {"model": None}, {"model": "nope", "sequence": 8}, {"model": "llama-8b"}, 3,
        {"model": "llama-8b", "sequence": -1}, {"model": "llama-8b", "sequence": 8, "keys": {"tensor": "no.such"}},
        {"model": "llama-8b", "sequence": "many"}, {"model": [1], "sequence": 8}, {"model": "llama-8b", "keys": [1]},
    ],
)  # fmt: skip
def test_a_run_without_a_plan_that_can_be_used_teaches_nothing(tmp_path: Path, plan: object) -> None:
    assert scored(past_run(tmp_path, 1, ["finished"], plan=plan)) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"counted": [1], "spent": "long"}, {"step": "many", "rank": "first"}, {"step": 10**400, "step_time": "now"},
        {"step_time": 1e308, "first_step_time": -1e308}, {"counted": {"memory_reserved_peak": "all"}, "step": None},
    ],
)  # fmt: skip
def test_nonsense_in_heartbeats_teaches_nothing_and_raises_nothing(tmp_path: Path, fields: dict[str, Any]) -> None:
    run = past_run(tmp_path, 1, ["node failure", "finished"])
    for path in run.path.glob("heartbeat/*/*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    found = scored(run)
    assert found is None or found.step is None or found.peak is None
    assert history(tmp_path).failures == 1


def test_a_plan_uses_and_tells_what_the_runs_show(tmp_path: Path) -> None:
    for number in range(1, 4):
        past_run(tmp_path / "runs", number, ["node failure", "node failure", "finished"])
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    mine = {**CONFIG, "plan": {**CONFIG["plan"], "tokens": 1e9, "nodes": [2]}, "launch": {"backend": "local"}}
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{yaml.safe_dump(mine)}")
    (tmp_path / "train.py").write_text("")

    def plan(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "slurmopt", "plan", "+experiment=mine", *words]
        return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=180)

    found = data_of(plan("--json").stdout)
    (row,) = found["shapes"]
    assert found["tier"] == {"memory": 3, "step": 3, "runs": 3}
    assert row["step"][0] < 2.0 < row["step"][1]
    assert row["peak"][0] < 20.9 * 2**30 < row["peak"][1]
    assert row["mtbf"] == pytest.approx(36 * HOUR / 6 / 2, rel=0.01)
    steps = 1e9 / (16 * 1024)
    assert row["run"][0] > 1.05 * steps * row["step"][0]
    assert row["save_every"] == pytest.approx((2 * 3 * row["mtbf"]) ** 0.5, rel=0.05)
    shown = plan().stdout
    assert "6 failures in 36 node-hours of your runs; a save blocks 3 s, a restart takes 15m00s" in shown
    assert "checkpoint.mtbf=180min suits the shape to take" in shown


def launched(place: Path, *words: str) -> tuple[str, list[str]]:
    """What the launch says, and `checkpoint.mtbf` in the configs of its runs."""
    argv = [sys.executable, "-m", "slurmopt", "launch", *words, "launch.backend=local", f"launch.folder={place}"]
    command = ["launch.name=new", "launch.wait=false", "task.command=[true]", "checkpoint.mtbf=history"]
    done = subprocess.run([*argv, *command], cwd=place, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    configs = [yaml.safe_load(path.read_text()) for path in (place / "new").rglob("config.yaml")]
    return done.stderr, [config["checkpoint"]["mtbf"] for config in configs]


def test_a_launch_takes_the_rate_of_earlier_runs(tmp_path: Path) -> None:
    """28 node-hours and 3 failures: 560 minutes of a node, and of each of two nodes half of that."""
    past_run(tmp_path, 1, ["node failure", "time limit", "hang", "finished"])
    past_run(tmp_path, 2, ["infrastructure", "preemption", "user error"])
    said, stored = launched(tmp_path, "resources.nodes=1")
    assert "slurmopt: checkpoint.mtbf=560min: 3 failures without notice in 28 node-hours of your runs" in said
    assert stored == ["560min"]


def test_a_sweep_takes_it_too_and_few_failures_make_no_rate(tmp_path: Path) -> None:
    past_run(tmp_path, 1, ["node failure", "time limit", "hang", "finished"])
    said, stored = launched(tmp_path, "-m", "+lr=1,2")
    assert "checkpoint.mtbf=24h: 2 failures without notice in 16 node-hours of your runs, and 3 make a rate" in said
    assert set(stored) == {"24h"}


def test_two_nodes_fail_twice_as_often(tmp_path: Path) -> None:
    past_run(tmp_path, 1, ["node failure"] * 3)
    typed = Settings(resources=Resources(nodes=2), checkpoint=Checkpoint(mtbf="history"))
    typed.launch.folder = str(tmp_path)
    assert with_known_rate(["a=1", "checkpoint.mtbf=history"], typed) == ["a=1", "checkpoint.mtbf=120min"]
    assert Checkpoint(mtbf="history").mtbf_seconds == 86400
