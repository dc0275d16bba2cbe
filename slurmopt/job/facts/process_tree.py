"""Finds the processes below a process in /proc, also outside its process group and session (torchrun's workers)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection

_PR_SET_CHILD_SUBREAPER = 36
_WNOTHREAD = 0x20000000
_WAITED_FOR = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that programs block and receive with sigwait. srun blocks other signals too, but kills its tasks when they
arrive."""


def adopt_orphans() -> None:
    """Makes orphans among the descendants of this process its children, instead of init's (PR_SET_CHILD_SUBREAPER)."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def clear_up(spared: int | None = None) -> None:
    """Kills all descendants of this process but the child `spared`, in whatever session they are. `adopt_orphans` must
    have been called before."""
    while pids := [pid for pid in descendants(os.getpid()) if pid != spared]:
        send(pids, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.02)


def wait(pid: int) -> None:
    """Waits until this thread's child `pid` has ended, and leaves its status unread. Meanwhile adopted orphans are
    reaped, as each counts against the limit of processes. Children of other threads are left to them."""
    while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | _WNOTHREAD):
        if ended.si_pid == pid:
            return
        os.waitpid(ended.si_pid, 0)


def is_running(pid: int) -> bool:
    """Whether a child of this process has not ended. Unlike Popen.poll it leaves the status to those who wait for
    it."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None
    except ChildProcessError:  # its status has been read
        return False


def descendants(pid: int) -> list[int]:
    """Process ids of all children of `pid`, their children and so on; zombies included."""
    children = _children()
    pids: list[int] = []
    todo = [pid]
    while todo:
        below = children.get(todo.pop(), [])
        pids += below
        todo += below
    return pids


def kill_below(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Sends a signal to every descendant of `pid`."""
    send(descendants(pid), number)


def _children() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (parent := _parent(name)) is not None:
            children.setdefault(parent, []).append(int(name))
    return children


def _parent(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command's name is in parentheses and may hold anything, spaces and parentheses included.
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:  # it has gone, or is another user's where /proc is mounted with hidepid
        return None


def tell(pid: int, number: signal.Signals) -> list[int]:
    """Sends a signal to the processes that catch it, from `pid` downward, or to `pid` if none does: a shell that waits
    for a training would die of it, and the training would not get it. Returns the process ids."""
    pids = catching(pid, number) or [pid]
    send(pids, number)
    return pids


def tell_below(pid: int, number: signal.Signals) -> None:
    """Sends a signal to the processes below `pid` that catch it."""
    send([process for child in _children().get(pid, []) for process in catching(child, number)], number)


def send(pids: Collection[int], number: signal.Signals) -> None:
    """Sends a signal to those of the processes that still exist."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def has_catching(pid: int, number: signal.Signals) -> bool:
    """Whether a process below `pid` catches the signal."""
    return any(catching(child, number) for child in _children().get(pid, []))


def catching(pid: int, number: signal.Signals, names: Collection[str] = ()) -> list[int]:
    """Those of `pid` and its descendants that catch the signal or have one of `names`, without their own
    descendants."""
    children = _children()
    pids: list[int] = []
    todo = [pid]
    while todo:
        process = todo.pop()
        if name(process) in names or _catches(process, number):
            pids.append(process)
        else:
            todo += children.get(process, [])
    return pids


def name(pid: int) -> str:
    """The first 15 characters of the name of a process's program; empty if the process has ended."""
    return _status(pid).get("Name", "")


def _catches(pid: int, number: signal.Signals) -> bool:
    status = _status(pid)
    mask = int(status.get("SigCgt") or "0", 16)
    if number in _WAITED_FOR:
        mask |= int(status.get("SigBlk") or "0", 16)
    return not status.get("State", "").startswith("Z") and bool(mask >> (number - 1) & 1)


def _status(pid: int) -> dict[str, str]:
    try:
        with open(f"/proc/{pid}/status", errors="replace") as file:
            return {key: value.strip() for key, _, value in (line.partition(":") for line in file)}
    except OSError:
        return {}
