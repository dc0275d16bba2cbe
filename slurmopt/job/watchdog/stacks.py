"""Writes stack traces of hanging processes to the logs: a rank's own by faulthandler, those of others by py-spy.

faulthandler answers a signal from C, without the GIL. So a timer of the kernel's sends that signal to a rank whose
heartbeat thread has not run for long: it holds the GIL. (`faulthandler.dump_traceback_later` would need no timer, but
keeps a thread whose end every forked child waits for in vain when it exits, and there is one for all: the training's.)
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from slurmopt.job.facts import process_tree
from slurmopt.run_folder.access.files import read_json
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.heartbeat_silence import silent_after

SIGNAL = signal.SIGRTMIN + 11
"""The signal at which a rank, or a process that it forked, writes its stacks into the rank's log. No other use of this
signal is known."""
SHORTEST = 300.0
"""The least value of `restart.hang_after: auto`, in seconds."""
_MOST_PROCESSES = 16
_ALL_IN_SECONDS = 10.0
_WORDS = {"auto": None, "off": math.inf}


def silence(hang_after: float | None, heartbeat: float) -> float:
    """Seconds without a heartbeat after which the stacks are written: `hang_after` (None: auto), and never before the
    rank counts as silent."""
    return max(SHORTEST if hang_after is None else hang_after, silent_after(heartbeat, delay=0.0))


def hang_after(word: str) -> float | None:
    """Parses `--hang-after`: None for `auto`, infinite for `off`. ValueError if it is not a number above 0."""
    if word in _WORDS:
        return _WORDS[word]
    if not 0 < float(word) < math.inf:
        raise ValueError(word)
    return float(word)


class Stacks:
    """Writes the stacks of one rank when the watchdog asks, also if a thread holds the GIL forever."""

    def __init__(
        self,
        request: Path,
        hang_after: float | None,
        heartbeat: float,
        also: Callable[[], None] | None = None,
    ) -> None:
        """`also` writes further data when the watchdog asks; it may raise OSError."""
        self._request, self._also = request, also
        self._answered: tuple[int, int] | None = None
        self._log = os.dup(2)  # the training may close or replace its own
        faulthandler.register(SIGNAL, file=self._log, all_threads=True)
        self._timer = _Timer(silence(hang_after, heartbeat))
        atexit.register(self._timer.stop)  # faulthandler soon lets go of the signal, which kills from then on

    def wind(self) -> None:
        """Called with every heartbeat. If it is not called for long, the stacks are written."""
        self._timer.wind()

    def answer(self, rank: int, step: int | None, phase: str) -> None:
        """Writes the stacks into this rank's log if the watchdog asks for them, once for each request."""
        with contextlib.suppress(OSError):  # nobody asks; or the file system is away or full, and the rank lives on
            request = os.stat(held(self._request))
            if self._answered != (request.st_ino, request.st_mtime_ns):
                self._answered = (request.st_ino, request.st_mtime_ns)
                try:
                    self._write(rank, step, phase)
                except Exception as error:  # noqa: BLE001 - the heartbeat, which calls this, outlives any diagnostics
                    say(self._log, f"the diagnostics of rank {rank} failed: {type(error).__name__}: {error}")

    def _write(self, rank: int, step: int | None, phase: str) -> None:
        say(self._log, f"stacks of rank {rank}, step {'none' if step is None else step}, phase {phase}")
        faulthandler.dump_traceback(self._log, all_threads=True)
        below = [pid for pid in process_tree.descendants(os.getpid()) if _is_python(pid)]
        silent = [beat for beat in (read_json(self._request) or {}).get("silent", []) if beat["speaker"] == rank]
        others = [(f"a process below rank {rank}", pid) for pid in below]
        write_from_outside(others + [(silent_rank(beat["rank"]), beat["pid"]) for beat in silent], self._log)
        if self._also is not None:
            self._also()


def silent_rank(rank: int) -> str:
    return f"rank {rank}, which is silent"


def say(log: int, line: str) -> None:
    os.write(log, f"slurmopt: {line}\n".encode())


def write_from_outside(processes: Iterable[tuple[str, int]], log: int) -> None:
    """Writes the stacks of other processes of this node, or one line that says why they are missing."""
    deadline = time.monotonic() + _ALL_IN_SECONDS
    for whose, pid in list(processes)[:_MOST_PROCESSES]:
        if _answers(pid):
            say(log, f"stacks of {whose}, process {pid}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, SIGNAL)
            time.sleep(0.05)  # it writes them itself: keep them apart from the next ones
        elif trouble := _py_spy(whose, pid, log, deadline - time.monotonic()):
            say(log, f"no stacks of {whose}, process {pid}: {trouble}")


def _py_spy(whose: str, pid: int, log: int, seconds: float) -> str | None:
    """Runs py-spy to write the stacks; returns what went wrong in one line, or None."""
    # Beside this Python too: a job's PATH need not have its folder.
    program = shutil.which("py-spy") or shutil.which("py-spy", path=os.path.dirname(sys.executable))
    if program is None:
        return "py-spy is not installed"
    words = [program, "dump", "--nonblocking", "--pid", str(pid)]  # a stopped process cannot be paused
    try:
        done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, timeout=max(0.1, seconds))
    except subprocess.TimeoutExpired:
        return "py-spy took too long"
    except OSError as error:
        return f"py-spy cannot be started: {error.strerror}"
    if done.returncode != 0:
        return "py-spy: " + " ".join(done.stderr.decode(errors="replace").split())[:300]
    say(log, f"stacks of {whose}, process {pid}, by py-spy")
    os.write(log, done.stdout)
    return None


def _is_python(pid: int) -> bool:
    try:
        return "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:  # it has ended, or is a zombie
        return False


def _answers(pid: int) -> bool:
    """Whether the process writes its stacks at SIGNAL: ranks and their forked children do, unless they are stopped."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return False
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return bool(int(fields["SigCgt"], 16) >> (SIGNAL - 1) & 1) and fields["State"].split()[0] not in "TtD"


class _Event(ctypes.Structure):
    """`struct sigevent` of Linux, 64 bytes."""

    _fields_ = [
        ("value", ctypes.c_void_p),
        ("number", ctypes.c_int),
        ("how", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    ]


class _Span(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "seconds", "nanoseconds")]


class _Timer:
    """Sends SIGNAL to this process if it was not wound for `seconds`. Forked children do not inherit it."""

    _MONOTONIC = 1

    def __init__(self, seconds: float) -> None:
        self._library = _with_timers()
        seconds = min(seconds, 1e9)  # endless: in thirty years
        self._span = _Span(0, 0, int(seconds), int(seconds % 1 * 1e9))
        self._id = ctypes.c_void_p()
        event = _Event(None, SIGNAL, 0)
        if self._library.timer_create(self._MONOTONIC, ctypes.byref(event), ctypes.byref(self._id)):
            raise OSError(ctypes.get_errno(), "timer_create")

    def wind(self) -> None:
        self._set(self._span)

    def stop(self) -> None:
        self._set(_Span())

    def _set(self, span: _Span) -> None:
        self._library.timer_settime(self._id, 0, ctypes.byref(span), None)


def _with_timers() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "timer_create") else ctypes.CDLL("librt.so.1", use_errno=True)  # glibc < 2.34
