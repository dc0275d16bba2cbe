"""Says after how long without a heartbeat a rank counts as silent: one rule for the job side and the login side.

A silent rank does not end its attempt yet. The watchdog ends the attempt once the rank has sent no heartbeat for
`Allowance.steps`, or for `Allowance.patience` if it never sent one (`slurmopt/job/watchdog/hang_detector.py`).
"""

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
