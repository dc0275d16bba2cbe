"""Starts Python processes of slurmopt, and tells whether a process that the journal names is alive."""

from __future__ import annotations

import functools
import hashlib
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

EXEC_SECONDS = 0.5
"""Seconds. An exec takes milliseconds; an empty command line that persists belongs to a kernel thread."""
_FIRST_SPACE = "pid:[4026531836]"
"""The initial PID namespace, outside of all containers (PROC_PID_INIT_INO in Linux)."""


_WITHOUT_CWD = (
    "import sys; sys.path[:] = filter(None, sys.path); "  # before all that a file could stand in for
    "import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def module_words(module: str) -> list[str]:
    """The arguments after `sys.executable` that run a module of slurmopt as `-m` does, but without the working
    directory in sys.path: a training may write a `token.py` there, and so may others if it is writable for them.
    """
    return [*module_start(), module]


def module_start(any_python: bool = False) -> list[str]:
    """The arguments before the module's name. `any_python`: another Python than this one may run them."""
    return ["-P", "-m"] if sys.version_info >= (3, 11) and not any_python else ["-c", _WITHOUT_CWD]


@functools.cache
def machine() -> str:
    """Identifies where process ids have the same meaning: this boot of the machine and this PID namespace. Host names
    do not: two machines can be called localhost, and a container can have its host's name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not told here: a machine of its own, whose processes nobody takes for dead
        return os.urandom(16).hex()


def started_at(pid: int) -> int | None:
    """When the process started, in clock ticks since boot (field 22 of /proc/PID/stat); None if it does not exist."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def lives(pid: object, started: object, machine_told: object, host: object = None) -> bool | None:
    """Whether the process that a record names is alive; None if that cannot be told from here.

    `machine_told` is `machine()` of that process; None in records of earlier versions, which have only the host's name.
    With `host`, an equal host name and another boot count as this machine before its last boot.
    """
    if (machine_told is None and host != socket.gethostname()) or (
        machine_told is not None and machine_told != machine()
    ):
        return False if _is_earlier_boot(machine_told, host) else None
    if not isinstance(pid, int) or started is None:
        return False
    return started == started_at(pid)


def _is_earlier_boot(machine_told: object, host: object) -> bool:
    """Whether the record is of this machine before its last boot. Only outside of containers, whose host names may be
    equal, and for host names that are not as common as localhost."""
    boot, _, space = str(machine_told).partition(" ")
    here, _, ours = machine().partition(" ")
    is_name = host == socket.gethostname() and not str(host).startswith("localhost")
    return is_name and boot != here and space == ours == _FIRST_SPACE


def mark() -> str:
    """An identifier of this process among all others; `marked` reads it."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{started_at(pid)}:{os.urandom(4).hex()}:{short_machine()}"


def marked(word: object) -> int | None:
    """The id of the process that `mark` named, if it is another process of this machine and alive. Marks of earlier
    versions have the host's name instead of the machine."""
    host, *rest = str(word).split(":")
    if len(rest) not in (3, 4) or not rest[0].isdecimal() or not rest[1].isdecimal():
        return None
    pid, started = int(rest[0]), int(rest[1])
    here = machine() if rest[3:] == [short_machine()] else "another" if rest[3:] else None
    return pid if pid != os.getpid() and lives(pid, started, here, host) else None


@functools.cache
def short_machine() -> str:
    """`machine()` as twelve hexadecimal digits."""
    return hashlib.sha256(machine().encode()).hexdigest()[:12]


def alive(event: dict[str, Any], run: Path) -> bool | None:
    """Whether the local runner that a `submitted` event of `run` names is alive; None if that cannot be told from here.
    Journals can be edited, so the process must be the runner of this run."""
    pid = event.get("pid")
    is_alive = lives(pid, event.get("pid_started"), event.get("machine"), event.get("host"))
    return str(run) in _words(pid) if is_alive and isinstance(pid, int) else is_alive


def _words(pid: int) -> list[str]:
    """The command line. During exec a process has its new name but no command line yet, while its parent already
    continues, so an empty command line is read again while the process is alive."""
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
