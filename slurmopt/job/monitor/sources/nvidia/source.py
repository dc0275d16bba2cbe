"""The NVIDIA GPUs of this job as a source of the sampler."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from slurmopt.job.monitor.sources.nvidia.counters import NAMES, Field, Fields
from slurmopt.job.monitor.sources.nvidia.devices import Device, facts, find
from slurmopt.job.monitor.sources.nvidia.gauges import Gauges
from slurmopt.job.monitor.sources.nvidia.gpm import ACTIVITY, Gpm
from slurmopt.job.monitor.sources.nvidia.library import GPU_IS_LOST, Library, NoValue, NvmlUnusableError, load
from slurmopt.job.monitor.sources.nvidia.processes import Others
from slurmopt.job.monitor.sources.nvidia.xid import XidListener
from slurmopt.run_folder.series.series import NOT_MEASURED

COLUMNS = (
    "util", "mem_util", "memory", "memory_peak", "temperature", "margin", "clock_sm", "clock_mem", *NAMES, *ACTIVITY,
    "others",
)  # fmt: skip
"""All columns of a GPU, after `gpuN.`; docs/gpu-monitoring.md describes each."""

_PATIENCE = 0.1
"""Seconds that `close` waits for a reading to end."""


class Gpu:
    """One GPU or MIG slice, and how each of its columns is read."""

    def __init__(self, nvml: Library, device: Device) -> None:
        self.device = device
        self.lost = False
        self.trouble = ""
        """Why it gave no value at all at the last reading."""
        self._nvml = nvml
        self._fields, self._gauges = Fields(nvml, device), Gauges(nvml, device)
        self._gpm, self._others = Gpm(nvml, device), Others(nvml, device)

    def read(self) -> tuple[dict[str, float], dict[str, str]]:
        """Its values, and the reasons of the columns without one, by the columns' short names."""
        values: dict[str, float] = {}
        missing: dict[str, str] = {}
        if not self.lost:
            self._fields.read(values, missing)
            self._gauges.read(values, missing)
            self._fields.drop(self._gpm.read(values, missing))
            self._others.read(values, missing)
            self.trouble = "" if values else self._look_for_trouble()
        return (values, missing) if values else ({}, dict.fromkeys(COLUMNS, NOT_MEASURED) | missing)

    def whole(self) -> dict[str, float]:
        return self._gpm.whole()

    def field_latencies(self) -> dict[Field, int]:
        return self._fields.latencies

    def close(self) -> None:
        self._gpm.close()

    def _look_for_trouble(self) -> str:
        """One that fell off the bus does not come back before a reboot, and each call might take long."""
        try:
            self._nvml.ask("nvmlDeviceGetMemoryInfo", self.device.gpu)
        except NoValue as error:
            self.lost = error.code == GPU_IS_LOST
            return self._nvml.said(error.code)
        return ""


class NvidiaSource:
    """The GPUs of this job. `open` starts NVML; absent columns are known after the first `read`.

    `events` and `facts` return at once, also while a `read` waits for the driver. `close` adds the means of the whole
    attempt to the events.
    """

    name = "gpu"

    def __init__(self, words: list[str] | None) -> None:
        self._words = words
        self._nvml: Library | None = None
        self._gpus: list[Gpu] = []
        self._listener: XidListener | None = None
        self._closed = False
        self._facts: dict[str, Any] = {}
        self._absent: dict[str, str] = {}
        self._events: deque[dict[str, Any]] = deque(maxlen=1000)
        self._most_others: dict[int, int] = {}
        self._reading = threading.Lock()

    def facts(self) -> dict[str, Any]:
        """`vendor`, `driver` and `gpus`: see docs/gpu-monitoring.md; `gpu_error` where GPUs are not measured."""
        return self._facts

    def absent(self) -> dict[str, str]:
        return self._absent

    def read(self) -> dict[str, float]:
        with self._reading:
            return {} if self._closed else self._read()

    def events(self) -> list[dict[str, Any]]:
        return [self._events.popleft() for _ in range(len(self._events))]

    def close(self) -> None:
        """Waits neither for a `read` that hangs nor for the listener: what they hold goes with the process."""
        if not self._reading.acquire(timeout=_PATIENCE):
            return
        try:
            self._closed = True
            for gpu in self._gpus:
                if means := gpu.whole():
                    self._report({"event": "whole", "gpu": gpu.device.index, **means})
                gpu.close()
            if self._nvml is not None and (self._listener is None or self._listener.stop()):
                self._nvml.stop()
        finally:
            self._reading.release()

    def watch_calls(self, on_call: Callable[[str, float, str], None]) -> None:
        """Calls `on_call` after each call of NVML, with its name, its seconds, and "" or why it has no value."""
        if self._nvml is not None:
            self._nvml.on_call = on_call

    def field_latencies(self) -> dict[int, dict[Field, int]]:
        """GPU → field → the microseconds that reading it took, as NVML tells."""
        return {gpu.device.index: gpu.field_latencies() for gpu in self._gpus}

    def open(self) -> None:
        """Starts NVML, and finds the GPUs."""
        try:
            self._nvml = nvml = load()
            devices, notes = find(nvml, self._words)
        except NvmlUnusableError as error:
            self._cannot_measure(str(error))
            return
        except NoValue as error:
            self._cannot_measure(f"GPUs are not measured: NVML does not list them: {error.reason}")
            return
        if not devices:
            self._cannot_measure("GPUs are not measured: NVML shows none of those that this job was given")
            return
        for note in notes:
            self._report({"event": "note", "source": self.name, "note": note})
        self._facts = {
            "vendor": "NVIDIA", "driver": nvml.driver, "gpus": [facts(nvml, device) for device in devices],
        }  # fmt: skip
        self._gpus = [Gpu(nvml, device) for device in devices]
        self._listen(nvml, devices)

    def _listen(self, nvml: Library, devices: list[Device]) -> None:
        self._listener = XidListener(nvml, devices, self._events.append)
        if why := self._listener.start():
            self._report({"event": "note", "source": self.name, "note": f"XID errors of the GPUs: {why}"})

    def _cannot_measure(self, line: str) -> None:
        words = self._words or []
        places = [int(word) if word.isdigit() else place for place, word in enumerate(words)]
        gpus = [
            {"index": place, "uuid": None if word.isdigit() else word}
            for place, word in zip(places, words, strict=True)
        ]
        self._facts = {"vendor": "NVIDIA", "gpus": gpus, "gpu_error": line}
        self._absent = {f"gpu{place}.{name}": NOT_MEASURED for place in places for name in COLUMNS}
        self._report({"event": "note", "source": self.name, "note": line})

    def _read(self) -> dict[str, float]:
        if not self._gpus:
            return {}
        row: dict[str, float] = {}
        absent: dict[str, str] = {}
        for gpu in self._gpus:
            was_lost, trouble = gpu.lost, gpu.trouble
            values, missing = gpu.read()
            number = gpu.device.index
            row |= {f"gpu{number}.{name}": value for name, value in values.items()}
            absent |= {f"gpu{number}.{name}": why for name, why in missing.items() if name not in values}
            if gpu.lost and not was_lost:
                self._report({"event": "gpu_lost", "gpu": number})
            elif gpu.trouble != trouble and gpu.trouble:
                note = f"NVML has no value of this GPU: {gpu.trouble}"
                self._report({"event": "note", "source": self.name, "gpu": number, "note": note})
            self._note_others(number, values.get("others"))
        self._absent = absent
        return row

    def _note_others(self, number: int, count: float | None) -> None:
        if count is not None and count > self._most_others.get(number, 0):  # an event is the exception
            self._most_others[number] = int(count)
            self._report({"event": "others", "gpu": number, "count": int(count)})

    def _report(self, event: dict[str, Any]) -> None:
        self._events.append({**event, "time": time.time()})
