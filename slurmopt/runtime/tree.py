"""The processes below a process, found in /proc: they may have left its process group and session (torchrun's do)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """From now on orphans among the descendants of this process become its children, and not init's."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def clear_up() -> None:
    """Ends all that is below this process, whatever session it went to; to be complete it must have adopted orphans."""
    while descendants(os.getpid()):
        kill_below(os.getpid())
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.02)


def descendants(pid: int) -> list[int]:
    """Process ids of all children of `pid`, their children and so on; zombies included."""
    children = _children()
    found: list[int] = []
    todo = [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def kill_below(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Sends a signal to every descendant of `pid`."""
    for child in descendants(pid):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(child, number)


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
    except (FileNotFoundError, ProcessLookupError):
        return None


def catching(pid: int, number: signal.Signals) -> list[int]:
    """Of `pid` and the processes below it those that catch the signal; what is below one that does is left out."""
    children = _children()
    found: list[int] = []
    todo = [pid]
    while todo:
        one = todo.pop()
        if _catches(one, number):
            found.append(one)
        else:
            todo += children.get(one, [])
    return found


def _catches(pid: int, number: signal.Signals) -> bool:
    try:
        with open(f"/proc/{pid}/status", errors="replace") as file:
            masks = [int(line.split()[1], 16) for line in file if line.startswith("SigCgt:")]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return any(mask >> (number - 1) & 1 for mask in masks)
