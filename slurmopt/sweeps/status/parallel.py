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
"""Processes on a login node that many share."""


def parallel_map(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
    """`work` of each item, in their order, from one process for each core that this one may use.

    Results are pickled on their way. A process is only as far ahead of who reads as a pipe is long, and ends when
    nobody reads any more, also where this process was killed: those of `concurrent.futures` would stay, and would fill
    the memory where the reader is slow. What a process cannot do, because it died or could not be started, is done
    here, and so `work` raises its errors here. `work` must need no lock that another thread may hold: a fork takes the
    lock along, and not the thread.
    """
    count = min(len(os.sched_getaffinity(0)), _MOST, len(items))
    if count < 2:
        yield from map(work, items)
        return
    workers: list[tuple[int, Connection]] = []
    try:
        with contextlib.suppress(OSError):  # no process or no memory is left
            for first in range(count):
                workers.append(_fork(work, items[first::count]))
        for at, item in enumerate(items):
            try:
                result = workers[at % count][1].recv()
            except (IndexError, EOFError, OSError):
                result = work(item)
            yield result
    finally:
        for _, answers in workers:  # all of them first: each process has those of the processes before it open
            answers.close()
        for pid, _ in workers:
            with contextlib.suppress(ChildProcessError):  # SIGCHLD is ignored: it is reaped already
                os.waitpid(pid, 0)


def _fork(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> tuple[int, Connection]:
    answers, told = Pipe(duplex=False)
    try:
        pid = os.fork()
        if pid == 0:
            try:
                answers.close()
                for item in items:
                    told.send(work(item))
            finally:  # whatever it is: the parent meets it too, and tells it
                os._exit(0)
    finally:
        told.close()
    return pid, answers
