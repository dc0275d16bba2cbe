"""py-spy beside the training: it looks into a process that runs, and the training has nothing to do with its end."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading

from slurmopt.config.profiler import Profiler
from slurmopt.errors import one_line
from slurmopt.job import signals
from slurmopt.job.external_profilers import tools
from slurmopt.job.external_profilers.report import Report

_PR_SET_PTRACER = 0x59616D61
_ANY = ctypes.c_ulong(-1)
_REPORT_SECONDS = 20


def let_in() -> None:
    """Lets other processes of the user look into this one, where Yama lets only ancestors. It stays so through exec,
    but not in children: those of a command are sampled where ptrace_scope is 0."""
    if tools.ptrace_scope() == tools.DESCENDANTS:
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANY, 0, 0, 0)


class Attached:
    """py-spy at the process `pid`, which has let it in: it starts after the delay, and ends with the recording or when
    the training is to end."""

    def __init__(self, plan: Profiler, report: Report, program: str, pid: int) -> None:
        self._plan, self._report, self._program, self._pid = plan, report, program, pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slurmopt-profiler", daemon=True)
        signals.listen(lambda number: self._over.set())  # what is recorded is written while the training saves
        self._thread.start()

    def close(self) -> None:
        """Ends the recording, and waits for the report."""
        self._over.set()
        self._thread.join(_REPORT_SECONDS + 1)

    def _run(self) -> None:
        if self._over.wait(self._plan.delay):
            return self._report.collect("was not started, because the training ended first")
        try:
            words = tools.words(self._plan, self._program, self._report.stem, self._pid)
            with (self._report.place / "said").open("wb") as said:
                process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, close_fds=True)
        except OSError as error:
            return self._report.collect(f"cannot be started ({one_line(str(error))})")
        self._report.collect(self._ended(process))

    def _ended(self, process: subprocess.Popen[bytes]) -> str:
        """Waits for the end of py-spy, and says how it ended."""
        while process.poll() is None and not self._over.wait(0.2):
            pass
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # it writes what it has
        try:
            status = process.wait(_REPORT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        return f"ended with exit status {status}{self._last_words() if status else ''}"

    def _last_words(self) -> str:
        lines = (self._report.place / "said").read_text(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        return f" ({one_line(last)[:200]})" if last else ""


def own_pid() -> int:
    """The process id of this process, which lets py-spy in."""
    let_in()
    return os.getpid()
