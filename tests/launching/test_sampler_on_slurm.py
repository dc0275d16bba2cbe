"""The sampler of each node on a real Slurm: its rows advance, and nothing of it is left however the job ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from private_cluster import wait_until

from slurmopt.run_folder import heartbeat
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series import series

STEPS = """
import time

import slurmopt


def main(config):
    step = 0
    while True:
        step += 1
        slurmopt.progress(step)
        time.sleep(0.05)


main.makes_process_group = True  # without torch
"""
TWO_NODES = ("resources.nodes=2", "resources.tasks_per_node=1", "task._target_=steps.main", "resources.time=10m")
QUICK = ("health.enabled=false", "monitor.heartbeat=1s", "monitor.every=1s")


def samplers(folder: RunFolder) -> list[int]:
    """The processes of the run's samplers."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if b"slurmopt.job.monitor" in words and str(folder.path).encode() in words:
            found.append(int(name))
    return found


def started(project: Any, *words: str) -> RunFolder:
    (project.path / "steps.py").write_text(STEPS)
    answer = project.submit(*TWO_NODES, *QUICK, *words)
    folder = RunFolder(Path(answer["run"]))
    wait_until(lambda: len(samplers(folder)) == 2, 90, "both nodes have a sampler", lambda: log(folder))
    return folder


def log(folder: RunFolder) -> str:
    return "\n".join(path.read_text() for path in folder.logs.rglob("*.log"))


def step(folder: RunFolder) -> int:
    """The last step of rank 1, in an attempt that goes on."""
    beat = heartbeat.read(folder.heartbeat(0, 1))
    return 0 if beat is None or beat.outcome is not None else beat.step or 0


def rows(folder: RunFolder) -> dict[str, series.Series]:
    names = folder.nodes_with_series(0)
    read = {name: series.read(folder.series(0, name), folder.recent_series(0, name), detail=True) for name in names}
    return {name: one for name, one in read.items() if one is not None}


def test_both_nodes_are_measured_and_no_sampler_outlives_the_job(project: Any) -> None:
    folder = started(project, "launch.name=measured")
    wait_until(
        lambda: len(found := rows(folder)) == 2 and all(len(one.times) >= 2 for one in found.values()),
        90,
        "two rows of each node",
        lambda: log(folder),
    )
    measured = rows(folder)
    assert {one.node for one in measured.values()} == set(measured)
    for rank, name in enumerate(sorted(measured)):
        one = measured[name]
        steps = [value for value in one.values[f"rank{rank}.step"] if value is not None]
        assert steps == sorted(set(steps)), "steps rise from row to row"
        assert (one.mean("node.cpu") or 0) > 0
        assert all(9 < seconds < 30 for seconds in one.seconds)
    table = project.slurmopt("metrics", str(folder.path)).stdout
    assert "2 nodes" in table
    assert "rank.steps" in table
    assert "node.page_cache" in table
    read = data_of(project.slurmopt("metrics", str(folder.path), "--json", "--node", min(measured)).stdout)
    assert [one["node"] for one in read["nodes"]] == [min(measured)]
    project.slurmopt("cancel", str(folder.path))
    wait_until(lambda: not samplers(folder), 60, "no sampler is left", lambda: log(folder))
    (status,) = data_of(project.slurmopt("status", str(folder.path), "--json").stdout)
    assert status["state"] == "cancelled"


@pytest.mark.parametrize("who", ["rank", "sampler"])
def test_a_killed_rank_takes_its_sampler_along_and_a_killed_sampler_takes_nothing(project: Any, who: str) -> None:
    folder = started(project, f"launch.name=killed-{who}", "restart.budgets.killed=0")
    wait_until(lambda: step(folder) > 0, 90, "rank 1 makes steps")
    beat = heartbeat.read(folder.heartbeat(0, 1))
    assert beat is not None
    if who == "rank":
        os.kill(beat.pid, signal.SIGKILL)
        wait_until(lambda: not samplers(folder), 60, "no sampler is left", lambda: log(folder))
        return
    for pid in samplers(folder):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not samplers(folder), 20, "the samplers are gone")
    first = step(folder)
    wait_until(
        lambda: (now := heartbeat.read(folder.heartbeat(0, 1))) and (now.step or 0) > first + 20, 60, "it goes on"
    )
    assert heartbeat.read(folder.heartbeat(0, 1)).outcome is None  # type: ignore[union-attr]
