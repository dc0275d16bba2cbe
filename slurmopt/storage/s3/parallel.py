"""Runs the requests of one operation in parallel, with a bound, and ends all of them when one fails."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from slurmopt.storage.s3.transport import Operation

T = TypeVar("T")
CONNECTIONS = 8
"""Concurrent requests of one operation."""


def run(current: Operation, calls: Iterable[Callable[[], T]]) -> list[T]:
    """Runs `calls` and returns their results in order; takes the next call only when a thread is free.

    The first failure, of a call or of the iterator, or an interrupt ends all others at once. It is raised when no
    thread uses the caller's memory any more.
    """
    slots = threading.Semaphore(CONNECTIONS)
    failed = threading.Event()
    futures: list[Future[T]] = []

    def release(future: Future[T]) -> None:
        if future.exception() is not None:
            failed.set()
        slots.release()

    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="s3") as pool:
        try:
            source = iter(calls)
            while slots.acquire() and not failed.is_set():
                call = next(source, None)
                if call is None:
                    break
                futures.append(pool.submit(contextvars.copy_context().run, call))
                futures[-1].add_done_callback(release)
            _first_failure(futures)
        except BaseException:
            current.cancel()
            raise
    return [future.result() for future in futures]


def _first_failure(futures: list[Future[T]]) -> None:
    done, _ = wait(futures, return_when=FIRST_EXCEPTION)
    for future in done:
        future.result()
