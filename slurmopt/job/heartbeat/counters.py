"""Counts what a training does: steps, tokens, samples, floating-point operations, and what else is measured of it."""

from __future__ import annotations

import math
import threading
from typing import NamedTuple

STEPS, TOKENS, SAMPLES = "steps", "tokens", "samples"
FLOPS, HARDWARE_FLOPS = "flops", "hardware_flops"
COUNTED = (TOKENS, SAMPLES)
"""The metrics of `progress` that are added up over its calls."""


class BatchCosts(NamedTuple):
    """The names of what batches cost: see `slurmopt.run_folder.heartbeat`."""

    batches: str = "loader_batches"
    fetch: str = "loader_fetch"
    fetch_cpu: str = "loader_fetch_cpu"
    collate: str = "loader_collate"
    copy: str = "loader_copy"


BATCH_COSTS = BatchCosts()
PEAK = "_peak"
"""The end of names whose value is a maximum; others are sums."""


class Counters:
    """Sums since the attempt began. All methods may be called by any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # the second SIGTERM ends the rank from inside a signal handler
        self._totals: dict[str, float] = {}
        self._step: int | None = None
        self._flops_of: str | None = None
        self._flops = 0.0
        self._hardware_flops: float | None = None

    def stepped(self, step: int) -> None:
        """Counts the steps since the last call; the first call counts one, for a training may continue at any step."""
        with self._lock:
            if self._step is None:
                self._totals[STEPS], self._step = 1.0, step
            elif step > self._step:
                self._totals[STEPS] += step - self._step
                self._step = step

    def add(self, name: str, value: float) -> None:
        """Adds to a sum, and to the operations where they were told for it. What is no amount is left out."""
        if not 0 <= value < math.inf:
            return
        with self._lock:
            self._totals[name] = self._totals.get(name, 0.0) + value
            if name == self._flops_of:
                self._add_flops(value)

    def set_total(self, name: str, value: float) -> None:
        """Sets a sum that somebody else has counted."""
        with self._lock:
            self._totals[name] = value

    def raise_to(self, name: str, value: float) -> None:
        """Notes a new value of a maximum."""
        with self._lock:
            self._totals[name] = max(value, self._totals.get(name, value))

    def set_flops(self, name: str, flops: float, hardware: float | None) -> None:
        """Sets the operations for each token or sample, from now on; the first time for those before it as well."""
        with self._lock:
            is_first = self._flops_of is None
            self._flops_of, self._flops, self._hardware_flops = name, flops, hardware
            if is_first and name in self._totals:
                self._add_flops(self._totals[name])

    def totals(self) -> dict[str, float]:
        """The sums so far."""
        with self._lock:
            return dict(self._totals)

    def _add_flops(self, count: float) -> None:
        self._totals[FLOPS] = self._totals.get(FLOPS, 0.0) + count * self._flops
        if self._hardware_flops is not None:
            self._totals[HARDWARE_FLOPS] = self._totals.get(HARDWARE_FLOPS, 0.0) + count * self._hardware_flops
