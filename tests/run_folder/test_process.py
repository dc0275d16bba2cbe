"""Whether a process lives that a record names: of this machine, of a container, of an earlier version of slurmopt."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmopt.run_folder import process

ANOTHER_SPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
ASK = """
import json, os, sys
from pathlib import Path
from slurmopt.run_folder import process
event, word = json.loads(sys.stdin.read())
print(json.dumps([process.alive(event, Path("/runs/one")), process.marked(word)]))
"""


@pytest.fixture
def runner() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the run's folder among its words, as a local runner has."""
    started = subprocess.Popen([sys.executable, "-c", "input()", "/runs/one"], stdin=subprocess.PIPE)
    yield started
    started.kill()
    started.communicate()


def told(pid: int, **changed: Any) -> dict[str, Any]:
    """The `submitted` event of a local run."""
    event = {"pid": pid, "pid_started": process.started_at(pid), "host": socket.gethostname()}
    return {**event, "machine": process.machine(), **changed}


def mark_of(pid: int, *machine: str) -> str:
    return ":".join([socket.gethostname(), str(pid), str(process.started_at(pid)), "00c0ffee", *machine])


def test_a_process_of_this_machine_is_seen_and_its_end_too(runner: subprocess.Popen[bytes]) -> None:
    event, word = told(runner.pid), mark_of(runner.pid, process.short_machine())
    assert process.alive(event, Path("/runs/one")) is True
    assert process.alive(event, Path("/runs/two")) is False
    assert process.marked(word) == runner.pid
    runner.kill()
    runner.communicate()
    assert process.alive(event, Path("/runs/one")) is False
    assert process.marked(word) is None


def test_records_of_earlier_versions_are_read_by_their_hosts_name(runner: subprocess.Popen[bytes]) -> None:
    event = told(runner.pid)
    del event["machine"]
    assert process.alive(event, Path("/runs/one")) is True
    assert process.alive({**event, "host": "elsewhere"}, Path("/runs/one")) is None
    assert process.alive({**event, "pid_started": 1}, Path("/runs/one")) is False
    assert process.marked(mark_of(runner.pid)) == runner.pid
    assert process.marked(f"elsewhere:{mark_of(runner.pid).partition(':')[2]}") is None


@pytest.mark.parametrize(
    "word", ["", "::::", "a:b:c:d", "a:1:2:3:4:5", None, f"{socket.gethostname()}:{'9' * 400}:1:x"]
)
def test_what_is_no_mark_names_nobody(word: object) -> None:
    assert process.marked(word) is None


def test_a_container_with_the_same_host_name_says_nothing_of_a_process_outside(
    runner: subprocess.Popen[bytes],
) -> None:
    if os.getuid() or shutil.which("unshare") is None:
        pytest.skip("ANOTHER SPACE OF PROCESS IDS IS NOT TESTED: it needs root and unshare")
    question = json.dumps([told(runner.pid), mark_of(runner.pid, process.short_machine())])
    command = [*ANOTHER_SPACE, sys.executable, "-c", ASK]
    answer = subprocess.run(command, input=question, capture_output=True, text=True, check=True).stdout
    assert json.loads(answer) == [None, None]


def test_the_same_machine_started_again_and_another_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated: records of a boot before this one."""
    earlier = f"00000000-0000-0000-0000-000000000000 {process.machine().partition(' ')[2]}"
    here = process.machine().endswith("pid:[4026531836]")
    assert process.alive(told(os.getpid(), machine=earlier), Path("/runs/one")) is (False if here else None)
    contained = "00000000-0000-0000-0000-000000000000 pid:[4026532999]"
    assert process.alive(told(os.getpid(), machine=contained), Path("/runs/one")) is None
    assert process.alive(told(os.getpid(), machine=earlier, host="elsewhere"), Path("/runs/one")) is None
    assert process.marked(mark_of(os.getppid(), "0" * 12)) is None
