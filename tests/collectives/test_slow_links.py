"""A slow node and a slow link between real hosts are named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from json_answer import data_of
from separate_hosts import Host, require_hosts, slow_down, switched_hosts

from slurmopt.cli import main

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="network namespaces"),
]
DEADLINE = 120
RANKS = """
import ctypes, os, sys

import torch.distributed

from slurmopt.benchmarks.collectives import main

CLONE_NEWNET = 0x40000000
request, *namespaces = sys.argv[1:]
ranks = []
for rank, namespace in enumerate(namespaces):  # torch is imported once for all hosts, which takes seconds
    ranks.append(os.fork())
    if ranks[-1] == 0:
        with open(f"/run/netns/{namespace}") as file:
            assert ctypes.CDLL(None).setns(file.fileno(), CLONE_NEWNET) == 0
        os.environ |= {"RANK": str(rank), "NODE_RANK": str(rank), "SLURMD_NODENAME": f"node{rank + 1}"}
        os._exit(main([request]))
sys.exit(sum(os.waitpid(rank, 0)[1] != 0 for rank in ranks))
"""
"""A rank on each host, all of them children of one process."""


def test_the_slow_node_and_the_slow_link_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    require_hosts()
    result, request = tmp_path / "result.json", tmp_path / "request.json"
    options = {"collectives": ["all_reduce"], "sizes": "16K", "iterations": 3}
    words = {"options": options, "backend": "gloo", "init": f"file://{tmp_path}/store", "result": str(result)}
    request.write_text(json.dumps(words))
    with switched_hosts(5) as hosts:
        slow_down(hosts[4], "40mbit")
        slow_down(hosts[0], "40mbit", to=hosts[1])
        ended = _measure(hosts, request)
    assert ended.returncode == 0, ended.stderr
    assert main(["bench", "collectives", "--read", str(result)]) == 0
    shown = capsys.readouterr().out
    assert "5 ranks on 5 nodes (node1, node2, node3, node4 …), gloo" in shown
    assert "slow node node5: bandwidth" in shown
    assert "slow link node1 ↔ node2: bandwidth" in shown
    assert main(["bench", "collectives", "--read", str(result), "--json"]) == 0
    answer = data_of(capsys.readouterr().out)
    assert len(answer["links"]) == 10
    worst = {one["kind"]: one for one in reversed(answer["outliers"]) if one["measure"] == "bandwidth"}
    assert (worst["node"]["name"], worst["link"]["name"]) == ("node5", "node1 ↔ node2")
    assert worst["node"]["links"] == 4
    assert worst["node"]["value"] < 7.5e6  # 40 Mbit/s, and a burst; less where the machine is busy


def _measure(hosts: list[Host], request: Path) -> subprocess.CompletedProcess[str]:
    count = str(len(hosts))
    words = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "WORLD_SIZE": count, "NNODES": count}
    return subprocess.run(
        [sys.executable, "-c", RANKS, str(request), *(host.namespace for host in hosts)],
        env={**os.environ, "GLOO_SOCKET_IFNAME": "cable", **words},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
