"""Many requests of one operation at once: no more than there is room for, and none left when it ends."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from slurmopt.storage.s3_transport import Operation

T = TypeVar("T")
CONNECTIONS = 8
"""Requests that one operation has under way at a time."""


def run(current: Operation, calls: Iterable[Callable[[], T]]) -> list[T]:
    """The results in order; takes a call from `calls` only when a thread is free for it.

    The first failure, of a call or of `calls`, or an interrupt ends all the others at once and is raised when no
    thread uses the caller's memory any more.
    """
    free = threading.Semaphore(CONNECTIONS)
    failed = threading.Event()
    futures: list[Future[T]] = []

    def ended(future: Future[T]) -> None:
        if future.exception() is not None:
            failed.set()
        free.release()

    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="s3") as pool:
        try:
            source = iter(calls)
            while free.acquire() and not failed.is_set():
                call = next(source, None)
                if call is None:
                    break
                futures.append(pool.submit(contextvars.copy_context().run, call))
                futures[-1].add_done_callback(ended)
            _first_failure(futures)
        except BaseException:
            current.give_up()
            raise
    return [future.result() for future in futures]


def _first_failure(futures: list[Future[T]]) -> None:
    done, _ = wait(futures, return_when=FIRST_EXCEPTION)
    for future in done:
        future.result()
