"""The main memory of real processes: a rank, and what it has forked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmopt.job.monitor.sources import rank_memory
from slurmopt.job.monitor.sources.rank_memory import RankMemory
from slurmopt.run_folder.heartbeat import Heartbeat

MIB = 2**20


RANK = f"""
import os, signal
shared = bytearray(100 * {MIB})
shared[::4096] = b"1" * len(shared[::4096])
for _ in range(2):
    told, tells = os.pipe()
    if os.fork() == 0:
        own = bytearray(20 * {MIB})
        own[::4096] = b"1" * len(own[::4096])
        os.write(tells, b".")
        signal.pause()
    os.read(told, 1)
print("ready", flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def rank() -> Iterator[int]:
    """A process with 100 MiB, which it shares with two workers of 20 MiB each."""
    process = subprocess.Popen([sys.executable, "-c", RANK], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield process.pid
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def beat(pid: object, **fields: object) -> Heartbeat:
    return Heartbeat(**{"rank": 0, "world_size": 1, "node": "n1", "pid": pid, **fields})  # type: ignore[arg-type]


def test_workers_count_apart_and_shared_pages_once(rank: int) -> None:
    values = RankMemory(Path("/proc")).read({3: beat(rank)})
    assert set(values) == {"rank3.memory", "rank3.workers_memory"}
    assert 100 / 3 * MIB <= values["rank3.memory"] < 60 * MIB
    assert (2 * 20 + 200 / 3) * MIB <= values["rank3.workers_memory"] < 150 * MIB


def test_it_is_read_once_a_minute(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(rank_memory.time, "monotonic", lambda: now)
    memory = RankMemory(Path("/proc"))
    assert memory.read({0: beat(rank)})
    now += 59
    assert memory.read({0: beat(rank)}) == {}
    now += 2
    assert memory.read({0: beat(rank)})


@pytest.mark.parametrize("pid", [None, "x", 2**22 + 1])
def test_a_rank_without_a_process_has_no_memory(pid: object) -> None:
    assert RankMemory(Path("/proc")).read({0: beat(pid)}) == {}


def test_a_rank_that_has_ended_has_no_memory(rank: int) -> None:
    assert RankMemory(Path("/proc")).read({0: beat(rank, outcome="finished")}) == {}
