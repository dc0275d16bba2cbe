"""Where the ranks meet, when somebody else listens at the port that they were told."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from runtime.harness import Runner

TRAIN = (
    "import os, torch, torch.distributed as dist\n"
    "def train(config):\n"
    "    total = torch.ones(1)\n"
    "    dist.all_reduce(total)\n"
    "    return {'world': int(total), 'port': int(os.environ['MASTER_PORT'])}\n"
)
FOREIGN_STORE = (
    "import sys, torch.distributed as dist\n"
    "store = dist.TCPStore('127.0.0.1', int(sys.argv[1]), is_master=True, wait_for_workers=False)\n"
    "print('serving', flush=True)\n"
    "sys.stdin.read()\n"
    "print(store.num_keys())\n"
)


@contextmanager
def mute_listener() -> Iterator[int]:
    """It is connected to, and never says a word; its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as held:
        yield held.getsockname()[1]


def test_a_port_that_somebody_holds_is_passed_by(runner: Runner) -> None:
    runner.module("meets", TRAIN)
    with mute_listener() as port:
        runner.environment["MASTER_PORT"] = str(port)
        assert runner.run(2, "--timeout", "40", "--function", "meets.train") == 0, runner.story + runner.log(0)
    result = runner.result()["result"]
    assert result["world"] == 2
    assert result["port"] != port


def test_ranks_write_nothing_into_the_store_of_another_run(runner: Runner) -> None:
    runner.module("meets", TRAIN)
    with mute_listener() as port:
        pass
    foreign = subprocess.Popen(
        [sys.executable, "-c", FOREIGN_STORE, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert foreign.stdout is not None
    assert foreign.stdout.readline() == "serving\n"
    runner.environment["MASTER_PORT"] = str(port)
    status = runner.run(3, "--timeout", "40", "--function", "meets.train")
    keys, _ = foreign.communicate()
    assert status == 0, runner.story + runner.log(0)
    assert runner.result()["result"]["world"] == 3
    # what torch's client leaves of its own when it connects
    assert int(keys) <= 1
