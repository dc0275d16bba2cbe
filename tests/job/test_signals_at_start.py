"""Signals that arrive while a rank starts its command, or while the local backend starts the ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from job.harness import REPOSITORY, Runner, alive, send, wait_for

HOLD = """
import os, pathlib, subprocess, sys, time
from slurmopt.job import signals

def hold():
    pathlib.Path("new").write_text(str(os.getpid()))
    os.replace("new", "held")
    until = time.monotonic() + 60
    while not os.path.exists("go") and time.monotonic() < until:
        time.sleep(0.01)
"""
RANK = f"""{HOLD}
signals.install()
from slurmopt.job.worker import command, rank

class Held(command.CommandTask):
    def _start(self, words):
        if sys.argv[1] == "before the command":
            hold()
        process = super()._start(words)
        if sys.argv[1] == "before its id is known":
            hold()
        return process

class HeldInChild(subprocess.Popen):
    def __init__(self, words, preexec_fn):
        def prepare():
            hold()
            preexec_fn()
        super().__init__(words, preexec_fn=prepare)

command.CommandTask = Held
if sys.argv[1] == "before exec":
    command.subprocess.Popen = HeldInChild
sys.exit(rank.main(sys.argv[2:]))
"""
RANKS = f"""{HOLD}
from slurmopt.job.worker import spawn

class Held(spawn.Ranks):
    def _start_one(self, rank, words):
        pid = super()._start_one(rank, words)
        if rank == 0:
            hold()
        return pid

spawn.Ranks = Held
sys.exit(spawn.main(sys.argv[1:]))
"""
RANK_WAITS = """
import os, pathlib, time
if "RANK" in os.environ:
    pathlib.Path(os.environ["RANK"]).touch()
    while not os.path.exists("go"):
        time.sleep(0.01)
"""
COUNTS = "trap 'echo got it' USR1; echo ready $$; while [ ! -e end ]; do sleep 0.02; done; exit 75"
"""Prints a line for each USR1, and runs until there is a file `end`."""
GOES_ON = "until [ -e end ]; do sleep 0.02; done"
UNTIL_STOPPED = """
import time, slurmopt

def main(config):
    while not slurmopt.stop_requested():
        time.sleep(0.01)
    raise slurmopt.Requeue("saved")

main.makes_process_group = True  # without torch
"""
SRUN = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}
"""A step of Slurm whose signals go to all processes of the step: this process is in no cgroup of Slurm's."""


@pytest.fixture(autouse=True)
def _ends(runner: Runner) -> Iterator[None]:
    """Lets everything end that a failed test leaves."""
    yield
    runner.make_folders()
    for path in (runner.code / "go", runner.code / "end", runner.folder.stop_request(0)):
        path.touch()


class Held:
    """A process that waits at a place in its start until there is a file `go`."""

    def __init__(self, runner: Runner, script: str, ranks: int, *words: str) -> None:
        (runner.code / "held.py").write_text(script)
        runner.ranks = ranks
        runner.make_folders()
        self.runner = runner
        with runner.folder.rank_log(0, 0).open("ab") as log:
            self.process: subprocess.Popen[Any] = subprocess.Popen(
                [sys.executable, "held.py", *words],
                cwd=runner.code,
                env=runner._environment(),
                stdout=log,
                stderr=log,
                text=True,
            )
        wait_for((runner.code / "held").exists, "the place at which it is held")

    @property
    def held(self) -> int:
        """The process that waits."""
        return int((self.runner.code / "held").read_text())

    def go_on(self) -> None:
        (self.runner.code / "go").touch()

    def finish(self) -> int:
        """The verdict's exit status."""
        return self.runner.finish(self.process)


def rank(runner: Runner, place: str, script: str) -> Held:
    words = (str(runner.folder.path), "--heartbeat", "0.3", "--forward", "USR1", "--", "bash", "-c", script)
    return Held(runner, RANK, 1, place, *words)


def hear(held: Held, number: signal.Signals) -> None:
    """Sends a signal to the rank, and returns once the rank has heard it."""
    send(held.process, number)
    name = number.name.removeprefix("SIG")
    wait_for(lambda: (beat := held.runner.beat(0)) and beat.asked == name, "the request in the heartbeat")


def test_a_signal_reaches_a_command_whose_process_id_the_rank_does_not_know_yet(runner: Runner) -> None:
    held = rank(runner, "before its id is known", COUNTS)
    runner.wait_for_log(0, "ready")
    hear(held, signal.SIGUSR1)
    held.go_on()
    runner.wait_for_log(0, "got it")
    (runner.code / "end").touch()
    assert held.finish() == 75
    assert runner.log(0).count("got it") == 1


def test_a_signal_that_slurm_has_sent_to_the_command_is_not_sent_again(runner: Runner) -> None:
    runner.environment.update(SRUN)
    held = rank(runner, "before its id is known", COUNTS)
    runner.wait_for_log(0, "ready")
    os.kill(int(runner.log(0).split("ready ")[1].split()[0]), signal.SIGUSR1)  # as slurmstepd does
    hear(held, signal.SIGUSR1)
    runner.wait_for_log(0, "got it")
    held.go_on()
    wait_for(lambda: (beat := runner.beat(0)) and beat.phase == "running", "the command in the heartbeat")
    (runner.code / "end").touch()
    assert held.finish() == 75
    assert runner.log(0).count("got it") == 1


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
@pytest.mark.parametrize("srun", [{}, SRUN], ids=["local", "srun"])
def test_a_command_gets_the_signal_that_arrived_before_its_start(
    runner: Runner, srun: dict[str, str], number: signal.Signals
) -> None:
    """No process of Slurm's can have sent it to the command, which did not exist."""
    runner.environment.update(srun)
    held = rank(runner, "before the command", GOES_ON)
    hear(held, number)
    held.go_on()
    assert held.finish() == 137
    assert runner.result()["error"].endswith(f"bash was killed by {number.name}")


def test_a_signal_before_exec_is_kept_for_the_command(runner: Runner) -> None:
    held = rank(runner, "before exec", GOES_ON)
    hear(held, signal.SIGUSR1)
    assert alive(held.held), "the signal was sent to a process that has not become the command yet"
    held.go_on()
    assert held.finish() == 137
    assert runner.result()["error"].endswith("bash was killed by SIGUSR1")


def test_a_signal_reaches_the_ranks_that_are_started_after_it(runner: Runner) -> None:
    runner.module("train", UNTIL_STOPPED)
    held = Held(runner, RANKS, 2, "--ranks", "2", str(runner.folder.path), "--function", "train.main")
    wait_for(lambda: runner.beat(0), "the first rank's heartbeat")
    send(held.process, signal.SIGUSR1)
    held.go_on()
    assert held.finish() == 75
    for number in (0, 1):
        beat = runner.beat(number)
        assert beat is not None
        assert beat.asked == "USR1"


def test_a_signal_does_not_kill_a_rank_that_has_not_taken_it_yet(runner: Runner, tmp_path: Path) -> None:
    """Each rank is held where Python starts, before the first line of slurmopt."""
    runner.module("train", UNTIL_STOPPED)
    (tmp_path / "at_start").mkdir()
    (tmp_path / "at_start" / "sitecustomize.py").write_text(RANK_WAITS)
    runner.environment["PYTHONPATH"] = f"{tmp_path / 'at_start'}:{REPOSITORY}"
    process = runner.start(2, "--function", "train.main")
    for number in (0, 1):
        wait_for((runner.code / str(number)).exists, f"the start of rank {number}")
    send(process, signal.SIGUSR1)
    wait_for(lambda: all(_is_pending(child) for child in _children(process.pid)), "the signal at both ranks")
    (runner.code / "go").touch()
    assert runner.finish(process) == 75


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_pending(pid: int) -> bool:
    """Whether USR1 waits for a process. False for one that has died of it."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(lines.get("ShdPnd", "0"), 16) >> (signal.SIGUSR1 - 1) & 1)
