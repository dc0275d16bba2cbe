"""Processes of slurmopt's own: how their Python is started, and whether one that the journal names still lives."""

from __future__ import annotations

import functools
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

EXEC_SECONDS = 0.5
"""An exec takes milliseconds; what has no words for longer is a thread of the kernel."""


_WITHOUT_CWD = (
    "import runpy, sys; del sys.path[0]; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def module_words(module: str) -> list[str]:
    """What follows `sys.executable` to run a module of slurmopt's as `-m` does, but with no file of the working
    directory in place of a module: a training may write a `token.py` there, and others may where it is open to them.
    """
    return [*module_start(), module]


def module_start() -> list[str]:
    """The words before the module's name; those after it are its own."""
    return ["-P", "-m"] if sys.version_info >= (3, 11) else ["-c", _WITHOUT_CWD]


@functools.cache
def machine() -> str:
    """Where process ids mean the same: this boot of the machine, and this container's PID namespace. Host names do not
    tell: two machines can both be called localhost, and a container can have its host's name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not told here: a machine of its own, whose processes nobody takes for dead
        return os.urandom(16).hex()


def started_at(pid: int) -> int | None:
    """When the process started, in clock ticks since boot (field 22 of /proc/PID/stat); None where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def alive(event: dict[str, Any], run: Path) -> bool | None:
    """Whether the local runner that a `submitted` event of `run` names lives; None on another host, where nobody can
    tell. A journal can be edited: the process must be the runner of that very run."""
    if event.get("host") != socket.gethostname():
        return None
    pid = event.get("pid")
    if not isinstance(pid, int) or event.get("pid_started") != started_at(pid):
        return False
    return str(run) in _words(pid)


def _words(pid: int) -> list[str]:
    """The command line. In the midst of exec a process has its new name but no words yet, and its parent already goes
    on: so no words are waited out while the process lives."""
    deadline = time.monotonic() + EXEC_SECONDS
    while started_at(pid) is not None:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            break
        if words or time.monotonic() >= deadline:
            return os.fsdecode(words).split("\0")
        time.sleep(0.001)
    return []
