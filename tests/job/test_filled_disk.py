"""A disk that the task itself has filled: the attempt tells of the disk, and not of a kill that nobody did."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from job.harness import Runner

from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder

NO_SPACE = "No space left on device"
FILL = (
    "import contextlib, os\n"
    "def fill(folder):\n"
    "    with contextlib.suppress(OSError), open(os.path.join(folder, 'big'), 'wb', 0) as file:\n"
    "        while file.write(b'x' * 4096):\n"
    "            pass\n"
)


def mounted(folder: Path) -> Iterator[Path]:
    """`folder` as a disk of one megabyte."""
    if os.getuid() != 0:
        pytest.skip("NOT TESTED: mounting a small file system needs root")
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", str(folder)]).returncode:
        pytest.skip("NOT TESTED: no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    yield from mounted(tmp_path / "disk")


@pytest.fixture
def small(disk: Path) -> Runner:
    """A runner whose run folders are on the small disk, and whose code is not."""
    folder = RunFolder(disk / "runs" / "test" / "one")
    folder.make()
    events.append(folder.events, "attempt", attempt=0, job="local-1")  # its page has room for the end
    folder.config.write_text("lr: 0.1\n")
    code = disk.parent / "code"
    code.mkdir()
    return Runner(folder, code)


TASKS = {
    "returns": (1, ""),
    "prints until it fails": (1, "while True:\n        print('x' * 99, flush=True)"),
    "raises": (2, "raise ValueError('a mistake')"),
}


@pytest.mark.parametrize(("ranks", "then"), TASKS.values(), ids=TASKS)
def test_a_run_folder_that_the_task_has_filled_is_told(small: Runner, ranks: int, then: str) -> None:
    small.lone_function("train", f"{FILL}def main(config):\n    fill(os.environ['SLURMOPT_RUN_FOLDER'])\n    {then}\n")
    assert small.run(ranks, "--function", "train.main") == 69, small.story
    assert f"{NO_SPACE}: cannot write into {small.folder.logs}" in small.story
    assert "killed from outside" not in small.story
    end = small.last_event()
    assert (end["cause"], end["next"], end["node"]) == ("infrastructure", "requeue", None)


def test_a_rank_that_was_killed_where_there_is_room_was_killed(runner: Runner) -> None:
    runner.lone_function("train", "import os, signal\ndef main(config):\n    os.kill(os.getpid(), signal.SIGKILL)\n")
    assert runner.run(1, "--function", "train.main") == 137
    assert "killed by SIGKILL" in runner.story


ELSEWHERE = {
    "a function": ("--function", "train.main"),
    "a Python command": ("--", sys.executable, "train.py"),
    "a program": ("--", "sh", "-c", "dd if=/dev/zero of=$DISK/big bs=4096; exit $?"),
}


@pytest.mark.parametrize("task", ELSEWHERE.values(), ids=ELSEWHERE)
def test_another_disk_that_the_task_has_filled_is_told_as_infrastructure(
    runner: Runner, disk: Path, task: tuple[str, ...]
) -> None:
    runner.environment = {"DISK": str(disk), "TMPDIR": str(disk)}
    runner.module(
        "train",
        "import os\n"
        "def main(config=None):\n"
        "    with open(os.environ['DISK'] + '/big', 'wb', 0) as file:\n"
        "        while file.write(b'x' * 4096):\n"
        "            pass\n"
        "if __name__ == '__main__':\n    main()\n",
    )
    assert runner.run(1, *task) != 0
    assert runner.last_event()["cause"] == "infrastructure", runner.story
    assert runner.last_event()["next"] == "requeue"
    if "--function" in task:
        assert NO_SPACE in str(runner.last_event()["error"])
        assert str(disk) in str(runner.last_event()["error"])
