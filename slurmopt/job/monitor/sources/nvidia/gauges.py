"""NVML's gauges: utilisation, memory, temperature and its margin, clocks; power where there is no energy counter."""

from __future__ import annotations

from collections.abc import Callable

from slurmopt.job.monitor.sources.nvidia.devices import Device
from slurmopt.job.monitor.sources.nvidia.library import MEMORY_V2, Library, NoValue
from slurmopt.run_folder.series.series import NOT_MEASURED, NOT_SUPPORTED

_GPU_SENSOR, _SLOWDOWN = 0, 1
_SM, _MEM = 1, 2
_REASONS = {
    "throttle_power": 0x4,
    "throttle_sync": 0x10,
    "throttle_thermal": 0x20,
    "throttle_hw_thermal": 0x40,
    "throttle_brake": 0x80,
}
"""Column → its bit of nvmlClocksEventReasons."""


class Gauges:
    """The gauges of a GPU or a MIG slice. What the GPU does not support is asked for once."""

    def __init__(self, nvml: Library, device: Device) -> None:
        self._nvml, self._device = nvml, device
        self._final: dict[str, str] = {}
        self._slowdown: float | None = None
        self._reasons: int | None = None

    def read(self, values: dict[str, float], missing: dict[str, str]) -> None:
        """Adds the columns' values, and the reasons of those that have none; fills in what has no counter."""
        self._try(("util", "mem_util"), self._utilisation, values, missing)
        self._try(("memory", "memory_peak"), self._memory, values, missing)
        self._try(("temperature",), self._temperature, values, missing)
        self._try(("margin",), lambda: self._margin(values), values, missing)
        self._try(("clock_sm",), lambda: [self._clock(_SM)], values, missing)
        self._try(("clock_mem",), lambda: [self._clock(_MEM)], values, missing)
        if self._device.instance:
            missing["power"] = NOT_SUPPORTED  # a slice has no meter of its own
        elif missing.get("power") == NOT_SUPPORTED:
            self._try(("power",), self._power, values, missing)
        without = [name for name in _REASONS if missing.get(name) == NOT_SUPPORTED and name not in self._final]
        if without:
            self._throttled_now(without, values, missing)
        missing.update({name: why for name, why in self._final.items() if name in _REASONS})

    def _try(
        self, names: tuple[str, ...], ask: Callable[[], list[float]],
        values: dict[str, float], missing: dict[str, str],
    ) -> None:  # fmt: skip
        if names[0] in self._final:
            missing.update({name: self._final[name] for name in names})
            return
        try:
            told = dict(zip(names, ask(), strict=True))
        except NoValue as error:
            reasons = dict.fromkeys(names, error.reason)
            missing.update(reasons)
            if error.reason != NOT_MEASURED:
                self._final.update(reasons)
            return
        values.update(told)
        for name in names:
            missing.pop(name, None)

    def _utilisation(self) -> list[float]:
        if self._device.instance:
            raise NoValue(NOT_SUPPORTED)  # NVML has none for a slice
        told = self._nvml.ask("nvmlDeviceGetUtilizationRates", self._device.handle)
        return [float(told.gpu), float(told.memory)]

    def _memory(self) -> list[float]:
        """Bytes that processes hold: without what the driver reserves, where NVML tells that apart."""
        handle = self._device.handle
        told = self._nvml.first(("nvmlDeviceGetMemoryInfo", handle, MEMORY_V2), ("nvmlDeviceGetMemoryInfo", handle))
        return [float(told.used)] * 2

    def _temperature(self) -> list[float]:
        gpu = self._device.gpu
        return [float(self._nvml.first(("nvmlDeviceGetTemperatureV", gpu, _GPU_SENSOR),
                                       ("nvmlDeviceGetTemperature", gpu, _GPU_SENSOR)))]  # fmt: skip

    def _margin(self, values: dict[str, float]) -> list[float]:
        """Degrees to the temperature at which the GPU slows down."""
        try:
            return [float(self._nvml.ask("nvmlDeviceGetMarginTemperature", self._device.gpu))]
        except NoValue as error:
            if error.reason != NOT_SUPPORTED or "temperature" not in values:
                raise
        if self._slowdown is None:
            self._slowdown = self._nvml.ask("nvmlDeviceGetTemperatureThreshold", self._device.gpu, _SLOWDOWN)
        return [self._slowdown - values["temperature"]]

    def _clock(self, kind: int) -> float:
        return float(self._nvml.ask("nvmlDeviceGetClockInfo", self._device.gpu, kind))

    def _power(self) -> list[float]:
        return [self._nvml.ask("nvmlDeviceGetPowerUsage", self._device.gpu) / 1000]

    def _throttled_now(self, names: list[str], values: dict[str, float], missing: dict[str, str]) -> None:
        """For causes that the driver does not count: 1 where the clocks are lowered for it right now, else 0."""
        gpu = self._device.gpu
        try:
            if self._reasons is None:
                self._reasons = self._nvml.first(
                    ("nvmlDeviceGetSupportedClocksEventReasons", gpu),
                    ("nvmlDeviceGetSupportedClocksThrottleReasons", gpu),
                )
            now = self._nvml.first(
                ("nvmlDeviceGetCurrentClocksEventReasons", gpu), ("nvmlDeviceGetCurrentClocksThrottleReasons", gpu)
            )
        except NoValue as error:
            missing.update(dict.fromkeys(names, error.reason))
            if error.reason != NOT_MEASURED:
                self._final.update(dict.fromkeys(names, error.reason))
            return
        for name in names:
            if self._reasons & _REASONS[name]:
                values[name] = 1.0 if now & _REASONS[name] else 0.0
                missing.pop(name, None)
            else:
                missing[name] = self._final[name] = NOT_SUPPORTED
