"""NVML's counters, read in one call per GPU: energy, throttling by cause, PCIe and NVLink bytes, remapped rows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from slurmopt.job.monitor.sources.nvidia.devices import Device
from slurmopt.job.monitor.sources.nvidia.library import INVALID_ARGUMENT, Library, NoValue, reason_of
from slurmopt.run_folder.series.series import NOT_MEASURED, NOT_SUPPORTED

SLOW = 0.5
"""Seconds of a call after which it is unknown to which moment its counters belong: they are left out, and the next
ones tell the mean over both intervals."""
_ALL_LINKS = 0xFFFFFFFF
_LINKS = 18
_WIDE = 2**32
_UNSIGNED_INT, _TYPES = 1, ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_CLAMPED = "throttle_"

NAMES = (
    "power", "throttle_power", "throttle_sync", "throttle_thermal", "throttle_hw_thermal", "throttle_brake", "pcie_tx",
    "pcie_rx", "nvlink_tx", "nvlink_rx", "remapped_rows", "pcie_replays",
)  # fmt: skip
"""The columns that fields tell, on some GPU."""
Field = tuple[int, int]
"""The id of a field of NVML and its scope."""


@dataclass(frozen=True)
class Column:
    """A column that is computed from the sum of some fields."""

    name: str
    fields: tuple[Field, ...]
    scale: float = 1.0
    """Unit of the column for a unit of the field; for a rate, per second."""
    rate: bool = True


def columns(nvml: Library, device: Device) -> list[Column]:
    """The columns of a GPU. A MIG slice is throttled with its GPU; the GPU's other counters are not the slice's."""
    throttling = [Column(name, ((number, 0),), scale=1e-9) for name, number in _throttle_fields(nvml).items()]
    if device.instance:
        return throttling
    return [
        Column("power", ((83, 0),), scale=1e-3),  # mJ since the driver was loaded
        *throttling,
        Column("pcie_tx", ((197, 0),)),
        Column("pcie_rx", ((198, 0),)),
        Column("nvlink_tx", ((138, _ALL_LINKS),), scale=1024),
        Column("nvlink_rx", ((139, _ALL_LINKS),), scale=1024),
        Column("remapped_rows", ((142, 0), (143, 0)), rate=False),
        Column("pcie_replays", ((94, 0),)),
    ]


def _throttle_fields(nvml: Library) -> dict[str, int]:
    """The fields of nanoseconds by cause. Their numbers moved: 251 to 253 in the drivers 575 and 580.65, and 269 to
    271 from 580.82 on (nvidia-ml-py of those versions). In other drivers those numbers mean power smoothing."""
    fields = {"throttle_power": 74, "throttle_sync": 76}
    if nvml.driver_at_least(580, 82):
        return fields | {"throttle_thermal": 269, "throttle_hw_thermal": 270, "throttle_brake": 271}
    if nvml.driver_at_least(575):
        return fields | {"throttle_thermal": 251, "throttle_hw_thermal": 252, "throttle_brake": 253}
    return fields | {"throttle_thermal": 75}  # the older counter, of thermal policies


class Fields:
    """The counters of a GPU, and what they showed last."""

    def __init__(self, nvml: Library, device: Device) -> None:
        self._nvml, self._device = nvml, device
        self._columns = columns(nvml, device)
        self._last: dict[str, tuple[float, int | float]] = {}
        known = {column.name for column in self._columns}
        self._unsupported = {name: NOT_SUPPORTED for name in NAMES if name not in known}
        self._asked_links = False
        self.latencies: dict[Field, int] = {}
        """Field → the microseconds that its last reading took, as NVML tells."""

    def read(self, values: dict[str, float], missing: dict[str, str]) -> None:
        """Adds the columns' values, and the reasons of those that have none."""
        if not self._columns:
            missing.update(self._unsupported)
            return
        started = time.monotonic()
        try:
            told = self._told([field for column in self._columns for field in column.fields])
        except NoValue as error:
            missing.update(self._unsupported | {column.name: error.reason for column in self._columns})
            return
        now = time.monotonic()
        if now - started > SLOW:
            missing.update(self._unsupported | {column.name: NOT_MEASURED for column in self._columns})
            return
        for column in self._columns:
            self._add(column, [told[field] for field in column.fields], now, values, missing)
        self._forget_unsupported(missing)
        missing.update(self._unsupported)

    def drop(self, names: set[str]) -> None:
        """Reads these columns no more: something else tells them."""
        self._columns = [column for column in self._columns if column.name not in names]

    def _told(self, fields: list[Field]) -> dict[Field, tuple[int, int | float, int]]:
        """Field → its return code, its value and the type of the value."""
        answers = self._nvml.ask("nvmlDeviceGetFieldValues", self._device.gpu, fields)
        self.latencies = {field: int(answer.latencyUsec) for field, answer in zip(fields, answers, strict=True)}
        return {field: _value(answer) for field, answer in zip(fields, answers, strict=True)}

    def _add(
        self, column: Column, told: list[tuple[int, int | float, int]], now: float,
        values: dict[str, float], missing: dict[str, str],
    ) -> None:  # fmt: skip
        failed = [code for code, _, _ in told if code]
        if failed:
            missing[column.name] = NOT_SUPPORTED if failed[0] == INVALID_ARGUMENT else reason_of(failed[0])
            return
        total = sum(value for _, value, _ in told)
        if not column.rate:
            values[column.name] = total * column.scale
            return
        before = self._last.get(column.name)
        self._last[column.name] = now, total
        if column.name.startswith("pcie_") and column.name != "pcie_replays" and _narrow(told):
            missing[column.name] = NOT_MEASURED
        elif before is not None and total >= before[1] and now > before[0]:  # one that falls was reset
            rate = (total - before[1]) * column.scale / (now - before[0])
            # Some counters advance in steps of 100 ms, so that a share comes out slightly above one.
            values[column.name] = min(rate, 1.0) if column.name.startswith(_CLAMPED) else rate

    def _forget_unsupported(self, missing: dict[str, str]) -> None:
        gone = {column.name for column in self._columns if missing.get(column.name) == NOT_SUPPORTED}
        self._columns = [column for column in self._columns if column.name not in gone]
        self._unsupported |= dict.fromkeys(gone, NOT_SUPPORTED)
        if "nvlink_tx" in gone and not self._asked_links:
            self._asked_links = True
            self._add_links()

    def _add_links(self) -> None:
        """NVLink 5 counts bytes by link alone (fields 202 and 204)."""
        for name, number in (("nvlink_tx", 202), ("nvlink_rx", 204)):
            try:
                told = self._told([(number, link) for link in range(_LINKS)])
            except NoValue:
                continue
            links = tuple(field for field, (code, _, _) in told.items() if code == 0)
            if links:
                self._columns.append(Column(name, links))
                self._last[name] = time.monotonic(), sum(told[field][1] for field in links)
                del self._unsupported[name]


def _value(answer: Any) -> tuple[int, int | float, int]:
    code, kind = int(answer.nvmlReturn), int(answer.valueType)
    if code or kind >= len(_TYPES):
        return code, 0, kind
    return 0, getattr(answer.value, _TYPES[kind]), kind


def _narrow(told: list[tuple[int, int | float, int]]) -> bool:
    """Whether a counter of bytes may have 32 bits, which a full PCIe link goes through several times between two
    readings, so that a difference would tell anything."""
    return any(kind == _UNSIGNED_INT or value < _WIDE for _, value, kind in told)
