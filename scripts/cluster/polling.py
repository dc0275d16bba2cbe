"""Waiting for a condition, with a deadline and something to read when it passes."""

import time
from collections.abc import Callable
from pathlib import Path

from cluster.errors import ClusterError

INTERVAL = 0.05
TAIL_LINES = 15


def wait_until(ready: Callable[[], bool], seconds: float, what: str, explain: Callable[[], str] = str) -> None:
    """Poll until `ready`; past the deadline raise, with what `explain` finds to say."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise ClusterError("\n".join(filter(None, [f"{what}: not within {seconds:g} s", explain()])))
        time.sleep(INTERVAL)


def tail(paths: list[Path]) -> str:
    """The last lines of the first of these logs that says anything."""
    for path in paths:
        lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
        if lines:
            return "\n".join([f"--- the end of {path}", *lines[-TAIL_LINES:]])
    return ""
