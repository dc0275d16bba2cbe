"""Measures the training of one process: what it spends its time on, and what it counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from slurmopt.job.heartbeat import torch_memory
from slurmopt.job.heartbeat.activity_clock import STARTING, ActivityClock
from slurmopt.job.heartbeat.counters import COUNTED, Counters
from slurmopt.job.heartbeat.ddp_timings import DdpTimings
from slurmopt.job.heartbeat.pending_metrics import PendingMetrics

_DDP_EVERY = 1.0
_MEMORY_EVERY = 10.0


class TrainingMeter:
    """What a rank's process, or a child of it, measures of the training. Times are seconds."""

    def __init__(self, activity: str = STARTING) -> None:
        """`activity`: what the process does now."""
        self.clock = ActivityClock(activity)
        self.counters = Counters()
        self.at_step: Callable[[], None] | None = None
        """Called after each step, without a lock held, in the training's thread."""
        self.metrics = PendingMetrics({name: self.counters.add for name in COUNTED})
        self._ddp = DdpTimings()
        self._read_ddp = self._read_memory = float("-inf")

    def stepped(self, step: int, metrics: dict[str, Any]) -> dict[str, float]:
        """Takes a step in; returns the metrics that are available. Called by the training's thread."""
        self.clock.stepped()
        self.counters.stepped(step)
        now = time.monotonic()
        if now - self._read_ddp >= _DDP_EVERY:
            self._read_ddp = now
            self._ddp.read(self.counters)
        if now - self._read_memory >= _MEMORY_EVERY:
            self._read_memory = now
            torch_memory.read(self.counters)
        return self.metrics.take(metrics, step) if metrics or self.metrics.arrived is not None else {}
