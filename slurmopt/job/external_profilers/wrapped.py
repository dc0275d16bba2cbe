"""A training that nsys or ncu starts. Signals go to the training itself, its exit status counts, and it goes on where
the profiler is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from slurmopt import log
from slurmopt.config.profiler import Profiler
from slurmopt.job.external_profilers import beneath, tools
from slurmopt.job.external_profilers.report import Report

_LOOK_SECONDS = 0.1
_LAST_LOOKS = 20
_REPORT_SECONDS = 120
"""How long a profiler may take for its report once the training has ended."""
_HURRIED_SECONDS = 20
"""The same where the attempt is to end soon."""


class Wrapped:
    """One training below one profiler. This process must adopt orphans (PR_SET_CHILD_SUBREAPER)."""

    def __init__(self, plan: Profiler, report: Report, program: str) -> None:
        self._plan, self._report, self._program = plan, report, program

    def words(self, training: list[str], unblocked: bool = False) -> list[str]:
        """The words of the profiler, with those of the training; `unblocked`: it is to get SIGUSR1, which this process
        blocks. The profiler goes on blocking it: Slurm may send it to all processes."""
        told = [str(self._report.place), str(os.getpid()), str(int(unblocked))]
        python = [sys.executable, "-I", "-S", os.path.abspath(beneath.__file__)]
        return [*tools.words(self._plan, self._program, self._report.stem), *python, *told, *training]

    def training(self) -> int | None:
        """The process id of the training, once it has started."""
        return _number(self._report.place / "training")

    def wait(
        self, profiler: subprocess.Popen[bytes], each: Callable[[], None], hurried: Callable[[], bool]
    ) -> int | None:
        """Waits for the training, and for the report. Calls `each` meanwhile, ten times a second. Returns how the
        training ended, as in subprocess, or None where the profiler left before it had started it."""
        is_told = False
        while (status := self._status()) is None:
            each()
            if profiler.poll() is not None:
                if self._withdraw():
                    self._report.collect(_how(profiler))
                    log.warning(f"{self._plan.name} did not start the training, which is started without it")
                    return None
                if not self._lives():
                    status = self._last_status()
                    break
                if not is_told:
                    log.warning(f"{self._plan.name} {_how(profiler)} before the training, which goes on unprofiled")
                    is_told = True
            time.sleep(_LOOK_SECONDS)
        self._await_report(profiler, hurried)
        self._report.collect(_how(profiler))
        return status

    def _withdraw(self) -> bool:
        """Whether nothing below the profiler has started the training, nor will."""
        try:
            os.close(os.open(self._report.place / "claim", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        return True

    def _last_status(self) -> int:
        """How the training ended whose process is gone: what stands above it may be about to write that, or was killed
        with the profiler, and left the training to this process."""
        for _ in range(_LAST_LOOKS):
            if (status := self._status()) is not None:
                return status
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.training() or 0, os.WNOHANG)
                if pid:
                    return os.waitstatus_to_exitcode(status)
            time.sleep(_LOOK_SECONDS)
        return -signal.SIGKILL

    def _await_report(self, profiler: subprocess.Popen[bytes], hurried: Callable[[], bool]) -> None:
        began = time.monotonic()
        while profiler.poll() is None:
            if time.monotonic() - began > (_HURRIED_SECONDS if hurried() else _REPORT_SECONDS):
                log.warning(f"{self._plan.name} does not end after the training: it is killed")
                profiler.kill()
                profiler.wait()
                return
            time.sleep(_LOOK_SECONDS)

    def _lives(self) -> bool:
        """Whether the training runs, or is about to."""
        pid = self.training()
        return pid is None or runs(pid)

    def _status(self) -> int | None:
        return _number(self._report.place / "status")


def _how(profiler: subprocess.Popen[bytes]) -> str:
    status = profiler.returncode
    if status is None:
        return "goes on"
    return f"ended with exit status {status}" if status >= 0 else f"was killed by {signal.Signals(-status).name}"


def _number(path: Path) -> int | None:
    with contextlib.suppress(FileNotFoundError):
        return int(path.read_text())
    return None


def runs(pid: int) -> bool:
    """Whether a process runs, of whomever it is the child. A zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"
