"""Maps a function over items in forked processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_MOST = 8
"""Processes at most: many users share a login node."""


def parallel_map(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
    """Yields `work(item)` for each item, in order, computed by one process for each core that this process may use.

    Results are pickled. A worker runs ahead of the reader only as far as its pipe buffers, and ends when nobody reads
    any more, also where this process was killed; the workers of `concurrent.futures` would stay, and would fill the
    memory where the reader is slow. The items of a worker that died or could not be started are computed in this
    process, so `work` raises its errors here. `work` must not need a lock that another thread may hold: a fork copies
    the lock, but not the thread.
    """
    count = min(len(os.sched_getaffinity(0)), _MOST, len(items))
    if count < 2:
        yield from map(work, items)
        return
    workers: list[tuple[int, Connection]] = []
    try:
        with contextlib.suppress(OSError):  # the limit of processes or memory is reached
            for first in range(count):
                workers.append(_fork(work, items[first::count]))
        for at, item in enumerate(items):
            try:
                result = workers[at % count][1].recv()
            except (IndexError, EOFError, OSError):
                result = work(item)
            yield result
    finally:
        for _, answers in workers:  # all before waiting: each worker has the pipes of the earlier ones open
            answers.close()
        for pid, _ in workers:
            with contextlib.suppress(ChildProcessError):  # SIGCHLD is ignored, so it is reaped already
                os.waitpid(pid, 0)


def _fork(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> tuple[int, Connection]:
    answers, results = Pipe(duplex=False)
    try:
        pid = os.fork()
        if pid == 0:
            try:
                answers.close()
                for item in items:
                    results.send(work(item))
            finally:  # the parent runs into the same error, and raises it
                os._exit(0)
    finally:
        results.close()
    return pid, answers
