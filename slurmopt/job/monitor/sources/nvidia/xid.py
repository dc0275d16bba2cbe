"""Listens for XID errors: what the driver reports of a GPU, as in the kernel's log, for users without root."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

from slurmopt.job.monitor.sources.nvidia.devices import Device
from slurmopt.job.monitor.sources.nvidia.library import TIMEOUT, Library, NoValue
from slurmopt.run_folder.series.series import NOT_SUPPORTED

_WORDS = {0x8: "xid", 0x2000: "gpu_poison", 0x4000: "gpu_unavailable", 0x8000: "gpu_recovery"}
"""Bit of NVML's event types → the word of the event."""
_WHOLE_GPU = 0xFFFFFFFF
_WAIT_MS = 5000
_PAUSE = 1.0

Report = Callable[[dict[str, Any]], None]


class XidListener:
    """A thread that waits for events, also while another one waits for a driver that hangs."""

    def __init__(self, nvml: Library, devices: list[Device], report: Report) -> None:
        self._nvml, self._devices, self._report = nvml, devices, report
        self._stop = threading.Event()
        self._set: Any = None
        self._thread = threading.Thread(target=self._listen, name="slurmopt-xid", daemon=True)

    def start(self) -> str:
        """Starts to listen. Returns why it cannot, or an empty text."""
        try:
            self._set = self._nvml.ask("nvmlEventSetCreate")
        except NoValue as error:
            return error.reason
        refused = [self._register(gpu) for gpu in {device.gpu_index: device.gpu for device in self._devices}.values()]
        if all(refused):
            self._free()
            return refused[0] if refused else ""
        self._thread.start()
        return ""

    def stop(self) -> bool:
        """Ends the listening. Returns whether it has ended: it may be within a wait of NVML for some seconds more."""
        self._stop.set()
        if self._thread.is_alive():
            return False
        if self._set is not None:
            self._free()
        return True

    def _register(self, gpu: Any) -> str:
        """Why this GPU has no events. One type that it does not support would register none of them."""
        try:
            supported = self._nvml.ask("nvmlDeviceGetSupportedEventTypes", gpu)
            wanted = sum(bit for bit in _WORDS if bit & supported)
            if not wanted:
                return NOT_SUPPORTED
            self._nvml.ask("nvmlDeviceRegisterEvents", gpu, wanted, self._set)
        except NoValue as error:
            return error.reason
        return ""

    def _listen(self) -> None:
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                event = self._nvml.ask("nvmlEventSetWait_v2", self._set, _WAIT_MS)
            except NoValue as error:
                early = time.monotonic() - started < _WAIT_MS / 2000  # which NVML permits itself
                if error.code != TIMEOUT or early:
                    self._stop.wait(_PAUSE)
                continue
            self._tell(event)

    def _tell(self, event: Any) -> None:
        word = _WORDS.get(int(event.eventType))
        ours = [device for device in self._devices if _address(device.gpu) == _address(event.device)]
        instance = int(event.gpuInstanceId)
        if instance != _WHOLE_GPU:
            ours = [device for device in ours if device.instance is None or device.instance[0] == instance]
        if word is None:
            return
        for device in ours:
            number = {"xid": int(event.eventData)} if word == "xid" else {}
            self._report({"event": word, "time": time.time(), "gpu": device.index, **number})

    def _free(self) -> None:
        with contextlib.suppress(NoValue):
            self._nvml.ask("nvmlEventSetFree", self._set)
        self._set = None


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
