"""`slurmopt profile RUN` of an unchanged torchrun on two nodes of a real Slurm."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from private_cluster import wait_until

from slurmopt.job.external_profilers.tools import program

PLAIN = """
import os, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.set_num_threads(1)
enough = torch.zeros(1)
while not enough.item():
    torch.ones(64, 64) @ torch.ones(64, 64)
    dist.all_reduce(torch.ones(8))
    time.sleep(0.02)
    enough.fill_(float(os.path.exists("enough")))
    dist.broadcast(enough, 0)
    open(f"made-{dist.get_rank()}", "w").close()
dist.destroy_process_group()  # without it, gloo may abort at the exit of the process
"""
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "plain.py"]


def test_each_rank_of_torchrun_on_two_nodes_has_a_trace_of_the_same_time(project: Any) -> None:
    (project.path / "plain.py").write_text(PLAIN)
    words = (f"task.command={json.dumps(TORCHRUN)}", "launch.name=traced", "monitor.sampler=false")
    two = ("resources.nodes=2", "resources.tasks_per_node=2", "resources.memory=1GB", "resources.time=10m")
    run = Path(project.submit(*words, *two, "health.enabled=false")["run"])
    try:
        log = run / "logs" / "attempt-0" / "rank-0.log"
        wait_until(
            lambda: len(list(project.path.glob("made-*"))) == 4,
            90,
            "all ranks make steps",
            lambda: log.read_text() if log.exists() else "",
        )
        told = data_of(project.slurmopt("profile", "traced", "--ranks", "all", "--seconds", "0.3", "--json").stdout)
    finally:
        (project.path / "enough").touch()
    ranks = told["ranks"]
    assert set(ranks) == {"0", "1", "2", "3"}
    assert all("error" not in rank for rank in ranks.values())
    assert [len({ranks[rank]["node"] for rank in pair}) for pair in ("01", "23", "02")] == [1, 1, 2]
    assert {rank["start"] for rank in ranks.values()} == {told["capture"]["start"]}
    assert told["wall_seconds"] < 30
    spans = []
    for rank in ranks.values():
        trace = json.loads(gzip.decompress((Path(told["folder"]) / rank["file"]).read_bytes()))
        times = [event["ts"] for event in trace["traceEvents"] if event.get("cat") == "cpu_op"]
        base = int(trace.get("baseTimeNanoseconds", 0)) / 1e9 - rank["start"]
        spans.append((base + min(times) / 1e6, base + max(times) / 1e6))
    begun, ended = max(first for first, _ in spans), min(last for _, last in spans)
    assert ended - begun > 0.15, f"all recorded the same steps: {spans}"
    result = run / "result.json"
    wait_until(result.exists, 60, "the run ends")
    assert json.loads(result.read_text())["outcome"] == "finished", log.read_text()


LEAKS = """
import os, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from slurmopt import progress

KEPT = []


def main(config):
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    enough, step = torch.zeros(1), 0
    while not enough.item():
        model(torch.ones(8, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 3:
            KEPT.append(torch.zeros(5000))  # 20 kB
        step += 1
        progress(step)
        time.sleep(0.02)
        enough.fill_(float(os.path.exists("enough-memory")))
        dist.broadcast(enough, 0)
"""


def test_the_memory_of_each_rank_on_two_nodes_names_the_one_that_leaks(project: Any) -> None:
    (project.path / "leaks.py").write_text(LEAKS)
    words = ("task._target_=leaks.main", "launch.name=leaks", "monitor.sampler=false", "health.enabled=false")
    two = ("resources.nodes=2", "resources.tasks_per_node=2", "resources.memory=1GB", "resources.time=10m")
    run = Path(project.submit(*words, *two)["run"])
    try:
        wait_until(
            lambda: (project.status(str(run)).get("step") or 0) > 20, 90, "steps", lambda: project.status(str(run))
        )
        done = project.slurmopt("profile", "memory", "leaks", "--ranks", "all", "--json")
        told = data_of(done.stdout)["ranks"]
    finally:
        (project.path / "enough-memory").touch()
    assert set(told) == {"0", "1", "2", "3"}
    assert len({rank["record"]["node"] for rank in told.values()}) == 2
    leaks = {
        name: [said["text"] for said in rank["sentences"] if "leaves" in said["text"]] for name, rank in told.items()
    }
    (text,) = leaks.pop("3")
    assert text.startswith("leaks.py:21 leaves 19.5 KiB of main memory in tensors behind in each step")
    assert leaks == {"0": [], "1": [], "2": []}
    result = run / "result.json"
    wait_until(result.exists, 60, "the run ends")
    assert json.loads(result.read_text())["outcome"] == "finished"


HOT = """
import torch
import torch.distributed as dist


def hot_function():
    return sum(i * i for i in range(20000))


def main(config):
    for _ in range(3000):  # py-spy starts before torch is imported, so it is there long before the last of them
        hot_function()
        dist.all_reduce(torch.ones(1))
    return {"ranks": dist.get_world_size()}
"""


@pytest.mark.skipif(program("py-spy") is None, reason="NOT TESTED: py-spy is not installed")
def test_py_spy_samples_one_rank_of_each_node(project: Any) -> None:
    (project.path / "hot.py").write_text(HOT)
    words = ("task._target_=hot.main", "launch.name=spied", "task.profiler=py-spy", "monitor.sampler=false")
    two = ("resources.nodes=2", "resources.tasks_per_node=2", "resources.memory=1GB", "resources.time=10m")
    spy = "task.profiler_options={seconds: 600, delay: 0, ranks: node}"  # to the end of the training
    run = Path(project.submit(*words, *two, "health.enabled=false", spy)["run"])
    logs, result = run / "logs" / "attempt-0", run / "result.json"
    wait_until(
        result.exists,
        180,
        "the run ends",
        lambda: "".join(path.read_text() for path in sorted(logs.glob("rank-*.log"))),
    )
    assert json.loads(result.read_text())["outcome"] == "finished"
    reports = list((run / "profiles" / "attempt-0").glob("*.speedscope.json"))
    assert len(reports) == 2
    for report in reports:
        names = {frame["name"] for frame in json.loads(report.read_text())["shared"]["frames"]}
        assert "hot_function" in names
