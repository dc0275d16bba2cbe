"""Two ranks on two hosts of their own: what they connect to does not depend on what a host calls itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from job.harness import DEADLINE, REPOSITORY, Runner
from separate_hosts import Host, require_hosts, two_hosts

TRAIN = """
import os

import torch
import torch.distributed as dist

from slurmopt import current_run
from slurmopt.checkpoint import Checkpointer


def main(config):
    total = torch.ones(1)
    dist.all_reduce(total)
    state = {"step": int(total)}
    with Checkpointer({"shared": {"every": 1}}, current_run()) as checkpointer:
        assert checkpointer.restore(state) == 0
        assert checkpointer.save(7, state)
        assert checkpointer.wait()
    return {"world": int(total), "interface": os.environ.get("GLOO_SOCKET_IFNAME")}
"""


@pytest.mark.parametrize(
    ("addresses", "hosts_files"),
    [
        pytest.param(
            ["10.77.0.1/24", "10.77.0.2/24"],
            # As Debian's installer writes it: each host knows itself by an address that leads to itself alone.
            [
                "127.0.0.1 localhost\n127.0.1.1 node1\n10.77.0.2 node2\n",
                "127.0.0.1 localhost\n127.0.1.1 node2\n10.77.0.1 node1\n",
            ],
            id="host name at 127.0.1.1",
        ),
        pytest.param(
            ["fd77::1/64", "fd77::2/64"],
            ["::1 localhost\nfd77::1 node1\nfd77::2 node2\n"] * 2,
            id="IPv6 only",
        ),
    ],
)
def test_two_hosts_train_and_save_together(runner: Runner, addresses: list[str], hosts_files: list[str]) -> None:
    require_hosts()
    runner.module("training", TRAIN)
    runner.make_folders()
    with two_hosts(addresses, hosts_files) as hosts:
        started = [_start(runner, host, rank) for rank, host in enumerate(hosts)]
        try:
            told = [process.communicate(timeout=DEADLINE)[0] for process in started]
        finally:
            for process in started:
                process.kill()
    assert [process.returncode for process in started] == [0, 0], "\n".join(told)
    beat = runner.beat(0)
    assert beat is not None
    assert beat.outcome is not None
    assert beat.outcome["result"] == {"world": 2, "interface": "cable"}


def _start(runner: Runner, host: Host, rank: int) -> subprocess.Popen[str]:
    facts = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "NODE_RANK": rank, "NNODES": 2}
    words = ["--heartbeat", "1", "--timeout", "30", "--function", "training.main"]
    return host.start(
        [sys.executable, "-m", "slurmopt.job", runner.folder.path, *words],
        {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY),
            "SLURMD_NODENAME": host.name,
            "SLURM_JOB_NODELIST": "node[1-2]",
            "MASTER_ADDR": "node1",
            "MASTER_PORT": "15077",
            "SLURMOPT_ATTEMPT": "0",
            **{name: str(value) for name, value in facts.items()},
        },
        Path(runner.code),
    )
