"""Reads the table of metrics of an AMD GPU, and differences its counters; pure."""

from __future__ import annotations

from typing import Any

from slurmopt.errors import one_line

_SHARES = {
    "throttle_power": ("ppt_residency_acc",),
    "throttle_thermal": ("socket_thm_residency_acc", "vr_thm_residency_acc", "hbm_thm_residency_acc"),
    "throttle_hw_thermal": ("prochot_residency_acc",),
}
"""Column → the counters of firmware ticks in which the GPU was slowed down for it; the longest counts."""


def gauges(table: dict[str, Any]) -> dict[str, float]:
    """Columns that the table tells as they are now; of activity and power these stand in for counters."""
    found = {
        "util": number(table, "average_gfx_activity"),
        "mem_util": number(table, "average_umc_activity"),
        "power": first(table, "current_socket_power", "average_socket_power"),
        "temperature": first(table, "temperature_hotspot", "temperature_edge"),
        "clock_sm": first(table, "current_gfxclks", "current_gfxclk", "average_gfxclk_frequency"),
        "clock_mem": first(table, "current_uclk", "average_uclk_frequency"),
    }
    busy = number(table, "xcp_stats.gfx_busy_inst")  # of a partitioned GPU, where the older field is retired
    if found["util"] is None and busy is not None:
        found["util"] = busy
    return {name: value for name, value in found.items() if value is not None}


def counted(table: dict[str, Any]) -> set[str]:
    """The columns that only a second reading can tell."""
    ticks = number(table, "accumulation_counter") is not None
    names = {name for name, counters in _SHARES.items() if ticks and first(table, *counters) is not None}
    names |= {name for name, counter in (("xgmi_rx", "xgmi_read_data_acc"), ("xgmi_tx", "xgmi_write_data_acc"),
                                         ("pcie_replays", "pcie_replay_count_acc"))
              if number(table, counter) is not None}  # fmt: skip
    return names


def activity(before: dict[str, Any], table: dict[str, Any]) -> dict[str, float]:
    """Percent, as means over the firmware's ticks of the interval."""
    ticks = risen(before, table, "accumulation_counter")
    rates = {}
    for name, counter in (("util", "gfx_activity_acc"), ("mem_util", "mem_activity_acc")):
        busy = risen(before, table, counter)
        if ticks and busy is not None and busy <= 101 * ticks:  # some firmware counts in another unit
            rates[name] = min(100.0, busy / ticks)
    return rates


def shares(before: dict[str, Any], table: dict[str, Any]) -> dict[str, float]:
    ticks = risen(before, table, "accumulation_counter")
    rates = {}
    for name, counters in _SHARES.items():
        found = [value for counter in counters if (value := risen(before, table, counter)) is not None]
        if ticks and found:
            rates[name] = min(1.0, max(found) / ticks)
    return rates


def risen(before: dict[str, Any], table: dict[str, Any], counter: str) -> float | None:
    """By how much a counter rose; None where there is none, or where it fell, as it was reset."""
    old, new = _sum(before.get(counter)), _sum(table.get(counter))
    return new - old if old is not None and new is not None and new >= old else None


def first(table: dict[str, Any], *names: str) -> float | None:
    return next((value for name in names if (value := number(table, name)) is not None), None)


def number(table: dict[str, Any], name: str) -> float | None:
    """A number of the table; of a list the mean of its numbers. "N/A" and such are none."""
    numbers = _numbers(table.get(name))
    return sum(numbers) / len(numbers) if numbers else None


def _sum(value: Any) -> float | None:
    numbers = _numbers(value)
    return sum(numbers) if numbers else None


def _numbers(value: Any) -> list[float]:
    if isinstance(value, (list, tuple)):
        return [number for each in value for number in _numbers(each)]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return [float(value)] if is_number and value not in (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF) else []


def text(value: Any) -> str | None:
    return one_line(value) if isinstance(value, str) and value not in ("", "N/A") else None
