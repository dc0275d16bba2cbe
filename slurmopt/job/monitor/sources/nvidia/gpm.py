"""GPM of Hopper and newer GPUs: activity of SMs, tensor cores and memory, as exact means over an interval.

A value of GPM is the difference of two samples of hardware counters, so it is a mean over the time between them,
however long. Each reading is compared with the one before; the first one is kept, for the mean of the whole attempt.
"""

from __future__ import annotations

import math
import time
from typing import Any

from slurmopt.job.monitor.sources.nvidia.devices import Device
from slurmopt.job.monitor.sources.nvidia.library import Library, NoValue, reason_of
from slurmopt.run_folder.series.series import NOT_MEASURED, NOT_SUPPORTED

ACTIVITY = {"sm": 2, "occupancy": 3, "tensor": 5, "dram": 10, "fp64": 11, "fp32": 12, "fp16": 13}
"""Column → its metric of GPM, in percent."""
_TRAFFIC = {"pcie_tx": 20, "pcie_rx": 21, "nvlink_rx": 60, "nvlink_tx": 61}
_MEBIBYTE = 2**20
_SHORTEST = 0.1
"""Seconds: within less the counters may not have been refreshed (nvml.h)."""
_DRIFT = 0.05
"""Where the mean from first to last sample is that far from the mean of the intervals, a counter has wrapped."""


class Gpm:
    """The GPM samples of a GPU or MIG slice."""

    def __init__(self, nvml: Library, device: Device) -> None:
        self._nvml, self._device = nvml, device
        self._why = _unsupported(nvml, device)
        self._accepted = False
        self._taken: set[str] = set()
        """The columns of traffic that nothing else tells any more."""
        self._samples: list[Any] = []
        self._first: tuple[float, Any] | None = None
        self._last: tuple[float, Any] | None = None
        self._sums = dict.fromkeys(ACTIVITY, 0.0)
        self._seconds = dict.fromkeys(ACTIVITY, 0.0)

    def read(self, values: dict[str, float], missing: dict[str, str]) -> set[str]:
        """Adds the columns' values, and the reasons of those that have none; returns the columns of traffic on PCIe
        that it tells from now on."""
        if self._why:
            missing.update(dict.fromkeys((*ACTIVITY, *self._taken), self._why))
            return set()
        try:
            told = self._interval()
        except NoValue as error:
            missing.update(dict.fromkeys((*ACTIVITY, *self._taken), error.reason))
            if error.reason != NOT_MEASURED:
                self._refuse(error.reason)
            return set()
        if told is None:
            return set()
        if not self._accepted and not any(isinstance(told[number], float) for number in ACTIVITY.values()):
            # RTX Blackwell says that it supports GPM, and then gives traffic alone
            self._refuse(NOT_SUPPORTED)
            missing.update(dict.fromkeys(ACTIVITY, NOT_SUPPORTED))
            return set()
        self._accepted = True
        self._taken |= _spread(told, values, missing)
        return self._taken

    def whole(self) -> dict[str, float]:
        """The means since the first sample, and their seconds; empty without any."""
        if not self._accepted or self._first is None or self._last is None:
            return {}
        try:
            told = self._metrics(self._first[1], self._last[1])
        except NoValue:
            told = {}
        means = {}
        for name, number in ACTIVITY.items():
            if self._seconds[name]:
                added = self._sums[name] / self._seconds[name]
                value = told.get(number)
                exact = value / 100 if isinstance(value, float) else added
                means[name] = exact if abs(exact - added) <= _DRIFT else added
        rounded = {name: round(value, 5) for name, value in means.items()}
        return {"seconds": round(self._last[0] - self._first[0], 1), **rounded} if means else {}

    def close(self) -> None:
        for sample in self._samples:
            try:
                self._nvml.ask("nvmlGpmSampleFree", sample)
            except NoValue:
                break
        self._samples, self._first, self._last = [], None, None

    def _refuse(self, why: str) -> None:
        self._why = why
        self.close()

    def _interval(self) -> dict[int, float | str] | None:
        """Metric → its mean since the last sample, or why there is none; None for the first sample."""
        if self._last is not None and time.monotonic() - self._last[0] < _SHORTEST:
            return None
        sample = self._spare()
        if self._device.instance:
            self._nvml.ask("nvmlGpmMigSampleGet", self._device.gpu, self._device.instance[0], sample)
        else:
            self._nvml.ask("nvmlGpmSampleGet", self._device.handle, sample)
        before, self._last = self._last, (time.monotonic(), sample)
        if before is None:
            self._first = self._last
            return None
        told = self._metrics(before[1], sample)
        self._add_up(told, self._last[0] - before[0])
        return told

    def _spare(self) -> Any:
        """A sample that is neither the first nor the last one; three are enough."""
        used = [each[1] for each in (self._first, self._last) if each is not None]
        for sample in self._samples:
            if not any(sample is each for each in used):
                return sample
        self._samples.append(self._nvml.ask("nvmlGpmSampleAlloc"))
        return self._samples[-1]

    def _metrics(self, before: Any, after: Any) -> dict[int, float | str]:
        request = self._nvml.gpm_request()
        numbers = [*ACTIVITY.values(), *_TRAFFIC.values()]
        request.numMetrics, request.sample1, request.sample2 = len(numbers), before, after
        for place, number in enumerate(numbers):
            request.metrics[place].metricId = number
        told = self._nvml.ask("nvmlGpmMetricsGet", request)
        return {number: _metric(told.metrics[place]) for place, number in enumerate(numbers)}

    def _add_up(self, told: dict[int, float | str], seconds: float) -> None:
        for name, number in ACTIVITY.items():
            value = told[number]
            if isinstance(value, float):
                self._sums[name] += value / 100 * seconds
                self._seconds[name] += seconds


def _metric(metric: Any) -> float | str:
    """A metric's value, or why there is none."""
    if metric.nvmlReturn:
        return reason_of(metric.nvmlReturn)
    return float(metric.value) if math.isfinite(metric.value) else NOT_MEASURED


def _spread(told: dict[int, float | str], values: dict[str, float], missing: dict[str, str]) -> set[str]:
    for name, number in ACTIVITY.items():
        value = told[number]
        if isinstance(value, float):
            values[name] = value / 100
        else:
            missing[name] = value
    taken = set()
    for name, number in _TRAFFIC.items():
        value = told[number]
        # PCIe by GPM, as NVML's own counters of it may wrap between readings; NVLink by its counters, if there are any
        if isinstance(value, float) and (name.startswith("pcie_") or name in missing):
            values[name] = value * _MEBIBYTE
            missing.pop(name, None)
            taken |= {name} if name.startswith("pcie_") else set()
    return taken


def _unsupported(nvml: Library, device: Device) -> str:
    """Why there is no GPM on that GPU; empty where NVML says that there is."""
    try:
        return "" if nvml.ask("nvmlGpmQueryDeviceSupport", device.gpu).isSupportedDevice else NOT_SUPPORTED
    except NoValue as error:
        return error.reason
