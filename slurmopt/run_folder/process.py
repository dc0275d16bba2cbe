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
"""An exec takes milliseconds; what has no words for longer is a thread of the kernel."""
_FIRST_SPACE = "pid:[4026531836]"
"""The PID namespace outside of all containers: Linux's PROC_PID_INIT_INO."""


_WITHOUT_CWD = (
    "import runpy, sys; sys.path[:] = filter(None, sys.path); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def module_words(module: str) -> list[str]:
    """What follows `sys.executable` to run a module of slurmopt's as `-m` does, but with no file of the working
    directory in place of a module: a training may write a `token.py` there, and others may where it is open to them.
    """
    return [*module_start(), module]


def module_start(any_python: bool = False) -> list[str]:
    """The words before the module's name; those after it are its own. `any_python`: another Python than this one may
    run them."""
    return ["-P", "-m"] if sys.version_info >= (3, 11) and not any_python else ["-c", _WITHOUT_CWD]


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


def lives(pid: object, started: object, machine_told: object, host: object = None) -> bool | None:
    """Whether a process lives that a record names; None where that cannot be seen from here.

    `machine_told`: `machine()` of that process; None in records of earlier versions, which have the host's name alone.
    `host`: its name, for who may take an equal name and another boot for this machine before it was started again.
    """
    if (machine_told is None and host != socket.gethostname()) or (
        machine_told is not None and machine_told != machine()
    ):
        return False if _is_earlier_boot(machine_told, host) else None
    if not isinstance(pid, int) or started is None:
        return False
    return started == started_at(pid)


def _is_earlier_boot(machine_told: object, host: object) -> bool:
    """Whether it was this very machine before it was started again. Only outside of containers, which have each
    other's host names, and for a name that is no machine's own less than another's."""
    boot, _, space = str(machine_told).partition(" ")
    here, _, ours = machine().partition(" ")
    is_name = host == socket.gethostname() and not str(host).startswith("localhost")
    return is_name and boot != here and space == ours == _FIRST_SPACE


def mark() -> str:
    """This process among all others, in one word: what `marked` reads."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{started_at(pid)}:{os.urandom(4).hex()}:{short_machine()}"


def marked(word: object) -> int | None:
    """The id of the process that `mark` named, where it is another one of this machine and lives. Marks of earlier
    versions lack the machine: theirs is the host's name."""
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
    """Whether the local runner that a `submitted` event of `run` names lives; None where that cannot be seen from
    here. A journal can be edited: the process must be the runner of that very run."""
    pid = event.get("pid")
    is_alive = lives(pid, event.get("pid_started"), event.get("machine"), event.get("host"))
    return str(run) in _words(pid) if is_alive and isinstance(pid, int) else is_alive


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
