"""Leaves out values of a series that nothing can have measured: negative ones, and those beyond any hardware.

A damaged or foreign file may hold any finite number, and the counters of a driver are wrong at times. Such a value
counts as not measured, so that no finding comes of it. All limits are chosen here, far above what exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurmopt.run_folder.json_values import number

_SHARE, _PERCENT = 1.25, 125.0
"""Above 1 and 100 %, because counters and clocks are read one after the other."""
_LARGEST = 1e15
"""Bytes, bytes per second, steps."""
_MOST = {
    "util": _PERCENT, "mem_util": _PERCENT, "temperature": 200.0, "power": 1e5, "clock_sm": 1e5, "clock_mem": 1e5,
    "cpu": 1e5, "cpu_quota_throttled": _SHARE, "others": 1e5, "steps": 1e6, "sm": _SHARE, "tensor": _SHARE,
    "dram": _SHARE, "occupancy": _SHARE, "fp64": _SHARE, "fp32": _SHARE, "fp16": _SHARE, "share": _SHARE,
    "ddp_forward": 1e5, "ddp_backward": 1e5, "ddp_exposed": 1e5,
    "loader_fetch": 1e5, "loader_fetch_cpu": 1e5, "loader_collate": 1e5, "loader_copy": 1e5,
}  # fmt: skip
"""Name after the last dot → the largest value, in the unit of docs/metrics.md."""
_LEAST = {"margin": -200.0}
"""°C above the temperature of slowdown. All else is 0 or more."""
_FACTOR, _ROOM = 2.0, 3600.0
"""A rank's times are of a monotonic clock, and those of its attempt of clocks that are set at times."""

Column = list[float | None]


def plausible(values: Mapping[str, Column]) -> dict[str, Column]:
    """The columns of a series, with None for each value that cannot be."""
    return {name: _column(name, column) for name, column in values.items()}


def amount(value: Any, kind: str = "") -> float | None:
    """A fact such as the size of a memory: a number above zero and below what exists, else None. `kind`: a name in
    `_MOST`."""
    found = number(value)
    return found if found is not None and 0 < found <= _MOST.get(kind, _LARGEST) else None


def times(spent: Mapping[str, float], length: float) -> Mapping[str, float]:
    """What a rank of an attempt of `length` seconds spent; nothing where it is more than the attempt can have had."""
    return spent if sum(spent.values()) <= _FACTOR * length + _ROOM else {}


def timing(seconds: float | None, length: float) -> float | None:
    """DDP's timing of a step; None where it is longer than an attempt of `length` seconds can have been."""
    return seconds if seconds is not None and 0 <= seconds <= _FACTOR * length + _ROOM else None


def _column(name: str, column: Column) -> Column:
    """A column as it is takes the fast way: there are thousands."""
    ending = name.rpartition(".")[2]
    low = _LEAST.get(ending, 0.0)
    high = _SHARE if ending.startswith("throttle_") else _MOST.get(ending, _LARGEST)
    try:
        if not column or (min(column) >= low and max(column) <= high):  # type: ignore[type-var, operator]
            return column
    except TypeError:  # there are None among them
        pass
    return [value if value is not None and low <= value <= high else None for value in column]
