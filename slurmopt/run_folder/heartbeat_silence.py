"""When a heartbeat counts as silent: one rule for the job side and the login side."""

from __future__ import annotations

DEFAULT_INTERVAL = 10.0
"""Seconds between two heartbeats, unless `monitor.heartbeat` is set."""
READ_DELAY = 30.0
"""Seconds by which a process on another machine may see a heartbeat late: clocks differ, file systems cache."""
_MISSED = 3
_SHORTEST_INTERVAL = 1.0
"""Seconds: the writer looks once a second whether a heartbeat is due."""


def silent_after(interval: float, delay: float = READ_DELAY) -> float:
    """Seconds without a new heartbeat after which a rank counts as silent: three intervals, and `delay`, by which the
    observer may see a heartbeat late."""
    return _MISSED * max(interval, _SHORTEST_INTERVAL) + delay
