"""Reads the peak of the GPU memory that torch has allocated and reserved for this process."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from slurmopt.job.heartbeat.counters import Counters

ALLOCATED, RESERVED = "memory_allocated_peak", "memory_reserved_peak"


def read(counters: Counters) -> None:
    """Notes the peaks of all devices that this process uses, in bytes. Called by the training's thread alone.

    The numbers are the caching allocator's own: nothing is asked of the GPU, and no device is initialised.
    """
    if (torch := sys.modules.get("torch")) is not None:
        with contextlib.suppress(RuntimeError, AttributeError, TypeError, ValueError):  # a backend that has no numbers
            _read(torch, counters)


def _read(torch: Any, counters: Counters) -> None:
    for kind in ("cuda", "xpu"):
        device = getattr(torch, kind, None)
        if device is not None and _is_in_use(device):
            _add_up(device, counters)
    mps = getattr(torch, "mps", None)
    if mps is not None and _has_mps(torch):  # no peaks there: the largest of what was seen
        counters.raise_to(ALLOCATED, float(mps.current_allocated_memory()))
        counters.raise_to(RESERVED, float(mps.driver_allocated_memory()))


def _is_in_use(device: Any) -> bool:
    is_initialized = getattr(device, "is_initialized", None)
    return bool(is_initialized is not None and is_initialized())


def _has_mps(torch: Any) -> bool:
    backend = getattr(getattr(torch, "backends", None), "mps", None)
    return bool(backend is not None and backend.is_available())


def _add_up(device: Any, counters: Counters) -> None:
    stats = [device.memory_stats(number) for number in range(device.device_count())]
    for name, key in ((ALLOCATED, "allocated_bytes.all.peak"), (RESERVED, "reserved_bytes.all.peak")):
        if total := sum(each.get(key, 0) for each in stats):
            counters.raise_to(name, float(total))
