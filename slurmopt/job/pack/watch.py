"""Starts a watchdog process for a point once the point is old enough to hang."""

from __future__ import annotations

import os
import signal
import time

from slurmopt.job.pack.pack_args import Pack
from slurmopt.job.pack.process.fork import forked, release_signals
from slurmopt.job.pack.running import Running
from slurmopt.job.watchdog.hang_detector import Allowance
from slurmopt.job.watchdog.watchdog import Watchdog, hangs_before, interval

HUNG = 1
_YOUNG_SECONDS = 60.0
"""Seconds. A point that ends earlier needs no watchdog."""


class _PointWatchdog(Watchdog):
    def _end(self) -> None:
        """The parent ends the point."""


def is_due(running: Running, hang_after: float | None) -> bool:
    """Whether a point has got so old that its watchdog is to start. `hang_after`: as in `Call`."""
    young = _YOUNG_SECONDS if hang_after is None else min(_YOUNG_SECONDS, hang_after / 4)
    age = time.monotonic() - running.started
    return running.watchdog is None and hang_after != float("inf") and age >= young


def start(running: Running, pack: Pack) -> int:
    """Its process id; it ends with status HUNG where the point hangs, and has told so in the point's folder."""
    call = pack.call
    every = interval(pack.ranks, call.hang_after)
    hangs = hangs_before(running.run, running.attempt)
    allowed = Allowance(call.hang_after, pack.deadline, call.heartbeat, every, collective=call.timeout, hangs=hangs)
    parent = os.getpid()

    def look_out() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        release_signals()
        watchdog = _PointWatchdog(running.run, running.attempt, running.ranks, parent, allowed)
        if watchdog.watch() is not None:
            raise SystemExit(HUNG)

    return forked(look_out)
