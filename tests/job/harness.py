"""A run folder and real rank processes in it, for the tests of the job side."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurmopt.run_folder import events, heartbeat
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder

REPOSITORY = Path(__file__).parents[2]
DEADLINE = 60.0


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of `condition`, or a failed test after a minute.

    The pause is twice what a look takes: one at all processes must not keep a core from what it waits for.
    """
    began = time.monotonic()
    deadline = began + DEADLINE
    while not (value := condition()):
        now = time.monotonic()
        assert now < deadline, f"waited {DEADLINE:g} s in vain for {what}"
        time.sleep(max(0.02, 2 * (now - began)))
        began = time.monotonic()
    return value


@dataclass
class Runner:
    """Starts attempts of one run, as the batch shell would."""

    folder: RunFolder
    code: Path
    environment: dict[str, str] = field(default_factory=dict)
    attempt: int = 0
    ranks: int = 0

    def module(self, name: str, text: str) -> None:
        """Writes a module of the user's; ranks find it in their working directory."""
        (self.code / f"{name}.py").write_text(text)

    def lone_function(self, name: str, text: str) -> None:
        """A module whose `main` or `train` needs no other rank: it gets no process group, and no rank imports torch."""
        function = "main" if "def main(" in text else "train"
        self.module(name, f"{text}\n{function}.makes_process_group = True\n")

    def start(self, ranks: int, *words: str) -> subprocess.Popen[str]:
        return self.start_with(sys.executable, ranks, *words)

    def start_with(self, python: str, ranks: int, *words: str) -> subprocess.Popen[str]:
        """`start` with another Python for the ranks."""
        self.ranks = ranks
        self.make_folders()
        return self._python(python, "slurmopt.job.worker.spawn", "--ranks", str(ranks), str(self.folder.path), *words)

    def make_folders(self) -> None:
        for part in (self.folder.logs, self.folder.heartbeats):
            (part / f"attempt-{self.attempt}").mkdir(parents=True, exist_ok=True)

    def run(self, ranks: int, *words: str) -> int:
        """One whole attempt with its verdict; the verdict's exit status."""
        process = self.start(ranks, "--heartbeat", "0.3", *words)
        process.communicate(timeout=DEADLINE)
        return self.judge(process.returncode)

    def judge(self, step_exit: int) -> int:
        words = (str(self.folder.path), str(self.attempt), str(self.ranks), str(step_exit))
        process = self._python(sys.executable, "slurmopt.job.supervisor.verdict", *words)
        self.story = process.communicate(timeout=DEADLINE)[0]
        return process.returncode

    def _python(self, python: str, module: str, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [python, "-m", module, *words],
            cwd=self.code,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "PET_")) and k != "RANK"}
        ours = {"PYTHONPATH": str(REPOSITORY), "SLURMOPT_ATTEMPT": str(self.attempt), "PYTHONUNBUFFERED": "1"}
        return kept | ours | self.environment

    def log(self, rank: int) -> str:
        path = self.folder.rank_log(self.attempt, rank)
        return path.read_text(errors="replace") if path.exists() else ""

    def beat(self, rank: int) -> Heartbeat | None:
        return heartbeat.read(self.folder.heartbeat(self.attempt, rank))

    def result(self) -> dict[str, Any]:
        value = json.loads(self.folder.result.read_text())
        assert isinstance(value, dict)
        return value

    def last_event(self) -> dict[str, Any]:
        return events.read(self.folder.events)[-1]

    def wait_for_log(self, rank: int, text: str) -> None:
        wait_for(lambda: text in self.log(rank), f"{text!r} in rank {rank}'s log")

    def finish(self, process: subprocess.Popen[str]) -> int:
        process.communicate(timeout=DEADLINE)
        return self.judge(process.returncode)


def empty_python(folder: Path) -> Path:
    """A Python with nothing but the standard library."""
    venv.create(folder / "venv", symlinks=True)
    return folder / "venv" / "bin" / "python"


def alive(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def send(process: subprocess.Popen[str], number: signal.Signals) -> None:
    os.kill(process.pid, number)
