"""Finds the processes of points and the memory that they use, in /proc."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from slurmopt.job.facts import process_tree
from slurmopt.job.facts.process_memory import proportional

_PAGE = os.sysconf("SC_PAGE_SIZE")


def with_descendants(pids: list[int]) -> list[int]:
    """`pids` and their descendants. If the kernel lists the children of a process, other processes are not read."""
    pids_below, todo = [], list(pids)
    while todo:
        pid = todo.pop()
        pids_below.append(pid)
        children = _children(pid)
        if children is None:
            return [*pids, *(below for each in pids for below in process_tree.descendants(each))]
        todo += children
    return pids_below


def _children(pid: int) -> list[int] | None:
    """The children of all threads of `pid`; None if this kernel does not list them."""
    children: list[int] = []
    tasks = f"/proc/{pid}/task"
    try:
        threads = os.listdir(tasks)
    except OSError:  # it has ended
        return []
    for thread in threads:
        try:
            children += map(int, Path(f"{tasks}/{thread}/children").read_text().split())
        except FileNotFoundError:
            if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
                return None
        except ProcessLookupError:
            continue
    return children


def memory(pids: list[int], bound: int) -> int:
    """Bytes that processes use; exact only above `bound`, for that costs the kernel more.

    What they share with the parent (all that it has imported) counts in equal parts for all that share it.
    """
    resident = sum(map(_resident, pids))
    return resident if resident <= bound else sum(map(_proportional, pids))


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _proportional(pid: int) -> int:
    size = proportional(pid)
    return _resident(pid) if size is None else size  # 0 of a process that has ended


def kill(pids: list[int], number: signal.Signals = signal.SIGKILL) -> None:
    """Sends a signal to those of the processes that still exist."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def adopted(own: set[int]) -> list[int]:
    """The children of this process that it has not started itself: orphans from below its points. None where the kernel
    does not tell: they end with the pack."""
    return [pid for pid in _children(os.getpid()) or [] if pid not in own]


def session(pid: int) -> int | None:
    """The session of a process. Its leader is the point's rank, unless the process has left that session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        return os.getsid(pid)
    return None
