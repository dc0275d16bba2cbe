"""`slurmopt profile RUN` of an unchanged torchrun on two nodes of a real Slurm."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from json_answer import data_of
from private_cluster import wait_until

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
