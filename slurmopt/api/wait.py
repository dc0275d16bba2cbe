"""Asks again and again until something is so, with pauses that grow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

_FIRST, _LONGEST, _GROWTH = 0.1, 5.0, 1.5
"""Seconds. What is asked are files; Slurm's answer among it is shared by all processes of this user for 15 seconds."""

_Answer = TypeVar("_Answer")


def wait_until(
    ask: Callable[[], _Answer], is_so: Callable[[_Answer], bool], timeout: float | None, subject: str
) -> _Answer:
    """The first answer that `is_so`. TimeoutError after `timeout` seconds; None: never."""
    for pause in _pauses(timeout, subject):
        if is_so(answer := ask()):
            return answer
        time.sleep(pause)
    raise AssertionError("the pauses never end")


async def wait_until_async(
    ask: Callable[[], _Answer], is_so: Callable[[_Answer], bool], timeout: float | None, subject: str
) -> _Answer:
    """`wait_until` without holding up the event loop."""
    for pause in _pauses(timeout, subject):
        if is_so(answer := await asyncio.to_thread(ask)):
            return answer
        await asyncio.sleep(pause)
    raise AssertionError("the pauses never end")


def _pauses(timeout: float | None, subject: str) -> Iterator[float]:
    """The pauses in seconds; raises TimeoutError where the answer that follows the time-out was not the right one."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = _FIRST
    while True:
        left = pause if deadline is None else deadline - time.monotonic()
        yield max(0.0, min(pause, left))
        if deadline is not None and left <= 0:
            raise TimeoutError(f"{subject} has not ended after {timeout:g} s; it goes on")
        pause = min(pause * _GROWTH, _LONGEST)
