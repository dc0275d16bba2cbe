"""AMD's GPUs, measured with amdsmi: one read of the firmware's table of metrics for each GPU.

The counters of the table are differenced here. `amdsmi_get_violation_status` is never called: it reads the table twice,
and sleeps 100 ms in between. Written by the documentation and source of amdsmi 7.0, and not yet tried on a GPU.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from slurmopt.errors import SlurmoptError, one_line
from slurmopt.job.facts.gpus import ROCM, promised
from slurmopt.job.monitor.sources import amd_table
from slurmopt.job.monitor.sources.source import Source
from slurmopt.run_folder.series.series import NOT_ALLOWED, NOT_MEASURED, NOT_SUPPORTED

COLUMNS = (
    "util", "mem_util", "memory", "memory_peak", "power", "temperature", "clock_sm", "clock_mem", "throttle_power",
    "throttle_thermal", "throttle_hw_thermal", "xgmi_rx", "xgmi_tx", "pcie_replays",
)  # fmt: skip
_NEVER = {
    **dict.fromkeys(("margin", "throttle_sync", "throttle_brake", "pcie_rx", "pcie_tx", "sm", "tensor", "dram",
                     "occupancy", "fp64", "fp32", "fp16", "remapped_rows"), NOT_SUPPORTED),
    "others": NOT_MEASURED,
}  # fmt: skip
_KILOBYTE, _MEBIBYTE = 1000, 2**20
_REASONS = {2: NOT_SUPPORTED, 3: NOT_SUPPORTED, 10: NOT_ALLOWED}


def open_source() -> Source | None:
    """The source of this job's AMD GPUs, or None where it has none. Starts amdsmi, which may wait for the driver."""
    if not os.path.exists("/dev/kfd") or os.path.exists("/dev/nvidiactl"):
        return None
    words = granted(os.environ)
    if words == []:
        return None
    source = AmdSource(words)
    source.open()
    return source


def granted(environ: Mapping[str, str]) -> list[str] | None:
    """The AMD GPUs of this job, as its environment names them; None means all, outside of Slurm. HIP numbers what ROCR
    has left."""
    hip = [environ[name] for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES") if name in environ]
    words = promised(environ, ROCM)
    if hip and "ROCR_VISIBLE_DEVICES" in environ:
        left = promised({"ROCR_VISIBLE_DEVICES": environ["ROCR_VISIBLE_DEVICES"]}, ROCM)
        return [left[int(word)] for word in words if word.isdigit() and int(word) < len(left)]
    if words or hip or "ROCR_VISIBLE_DEVICES" in environ or "SLURM_JOB_ID" in environ:
        return words
    return None


class _NoValue(SlurmoptError):
    """amdsmi has no value. `reason`: one of ABSENT."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AmdSource:
    """The GPUs of this job. `events` and `facts` return at once, also while a `read` waits for the driver."""

    name = "gpu"

    def __init__(self, words: list[str] | None) -> None:
        self._words = words
        self._smi: Any = None
        self._gpus: list[_Gpu] = []
        self._facts: dict[str, Any] = {}
        self._absent: dict[str, str] = {}
        self._events: list[dict[str, Any]] = []
        self._closed = False
        self._reading = threading.Lock()

    def facts(self) -> dict[str, Any]:
        """`vendor` and `gpus`; `gpu_error` where GPUs are not measured."""
        return self._facts

    def absent(self) -> dict[str, str]:
        return self._absent

    def read(self) -> dict[str, float]:
        with self._reading:
            if self._closed:
                return {}
            row: dict[str, float] = {}
            absent: dict[str, str] = {}
            for gpu in self._gpus:
                values, missing = gpu.read()
                row |= {f"gpu{gpu.index}.{name}": value for name, value in values.items()}
                absent |= {f"gpu{gpu.index}.{name}": why for name, why in missing.items() if name not in values}
            if self._gpus:
                self._absent = absent
            return row

    def events(self) -> list[dict[str, Any]]:
        told, self._events = self._events, []
        return told

    def close(self) -> None:
        """Does not wait for a `read` that hangs."""
        if not self._reading.acquire(timeout=1):
            return
        try:
            self._closed = True
            if self._smi is not None:
                _ask(self._smi, "amdsmi_shut_down")
        except _NoValue:
            pass  # it is left to the end of the process
        finally:
            self._reading.release()

    def open(self) -> None:
        """Starts amdsmi, and finds the GPUs."""
        try:
            smi = importlib.import_module("amdsmi")
            smi.amdsmi_init()
        except ImportError:
            self._cannot_measure("this Python does not have amdsmi, which comes with ROCm (/opt/rocm/share/amd_smi)")
            return
        except Exception as error:  # noqa: BLE001 - without its library, or with another version's, it raises anything
            self._cannot_measure(one_line(f"amdsmi does not start: {type(error).__name__}: {error}"))
            return
        self._smi = smi
        try:
            self._gpus = _find(smi, self._words)
        except _NoValue as error:
            self._cannot_measure(f"amdsmi does not list them: {error.reason}")
            return
        if not self._gpus:
            self._cannot_measure("amdsmi shows none of those that this job was given")
            return
        self._facts = {"vendor": "AMD", "gpus": [gpu.facts() for gpu in self._gpus]}

    def _cannot_measure(self, why: str) -> None:
        line = f"GPUs are not measured: {why}"
        numbers = range(len(self._words or []))
        self._facts = {"vendor": "AMD", "gpus": [{"index": n, "uuid": None} for n in numbers], "gpu_error": line}
        self._absent = {f"gpu{number}.{name}": NOT_MEASURED for number in numbers for name in (*COLUMNS, *_NEVER)}
        self._events.append({"event": "note", "time": time.time(), "source": self.name, "note": line})


class _Gpu:
    """One GPU, or one partition of it, and what its counters showed last."""

    def __init__(self, smi: Any, handle: Any, index: int) -> None:
        self.index = index
        self._smi, self._handle = smi, handle
        self._last: tuple[float, dict[str, Any]] | None = None
        try:
            self._microjoules = float(_ask(smi, "amdsmi_get_energy_count", handle)["counter_resolution"])
        except (_NoValue, KeyError, TypeError, ValueError):
            self._microjoules = 0.0

    def facts(self) -> dict[str, Any]:
        asic, memory = self._told("amdsmi_get_gpu_asic_info"), self._told("amdsmi_get_gpu_vram_usage")
        power, total = (
            amd_table.number(self._told("amdsmi_get_power_cap_info"), "power_cap"),
            amd_table.number(memory, "vram_total"),
        )
        return {
            "index": self.index,
            "uuid": amd_table.text(self._told("amdsmi_get_gpu_enumeration_info").get("hip_uuid")),
            "name": amd_table.text(asic.get("market_name")),
            "memory": None if total is None else int(total * _MEBIBYTE),
            "power_limit": None if power is None else power / 1e6 if power > 1e4 else power,  # µW, in some versions W
            "mig": None,
            "architecture": amd_table.text(asic.get("target_graphics_version")),
        }

    def read(self) -> tuple[dict[str, float], dict[str, str]]:
        """Its values, and the reasons of the columns without one."""
        values: dict[str, float] = {}
        missing = dict(_NEVER)
        self._read_memory(values, missing)
        try:
            table = _ask(self._smi, "amdsmi_get_gpu_metrics_info", self._handle)
        except _NoValue as error:
            return values, missing | {name: error.reason for name in COLUMNS if name not in values}
        now = time.monotonic()
        before, self._last = self._last, (now, table)
        values |= amd_table.gauges(table)
        if before is not None and now > before[0]:
            values |= self._rates(before[1], table, now - before[0], values.get("power"))
        pending = amd_table.counted(table) if before is None else set()
        return values, missing | {name: NOT_SUPPORTED for name in COLUMNS if name not in {*values, *missing, *pending}}

    def _read_memory(self, values: dict[str, float], missing: dict[str, str]) -> None:
        try:
            used = amd_table.number(_ask(self._smi, "amdsmi_get_gpu_vram_usage", self._handle), "vram_used")
        except _NoValue as error:
            missing["memory"] = missing["memory_peak"] = error.reason
            return
        if used is not None:
            values["memory"] = values["memory_peak"] = used * _MEBIBYTE

    def _rates(
        self, before: dict[str, Any], table: dict[str, Any], seconds: float, power: float | None
    ) -> dict[str, float]:
        rates = amd_table.activity(before, table) | amd_table.shares(before, table)
        for name, counter in (("xgmi_rx", "xgmi_read_data_acc"), ("xgmi_tx", "xgmi_write_data_acc")):
            if (moved := amd_table.risen(before, table, counter)) is not None:
                rates[name] = moved * _KILOBYTE / seconds
        if (replays := amd_table.risen(before, table, "pcie_replay_count_acc")) is not None:
            rates["pcie_replays"] = replays / seconds
        energy = amd_table.risen(before, table, "energy_accumulator")
        if energy is not None and self._microjoules:
            watts = energy * self._microjoules / 1e6 / seconds
            if power is None or 0.5 * power <= watts <= 2 * power:  # before ROCm 6.3 the counter was wrong
                rates["power"] = watts
        return rates

    def _told(self, function: str) -> dict[str, Any]:
        try:
            told = _ask(self._smi, function, self._handle)
        except _NoValue:
            return {}
        return told if isinstance(told, dict) else {}


def _find(smi: Any, words: list[str] | None) -> list[_Gpu]:
    """The GPUs of these words. HIP's numbers are amdsmi's `hip_id` from ROCm 6.4 on; earlier both count alike."""
    handles = list(_ask(smi, "amdsmi_get_processor_handles"))
    names = [_names(smi, handle, index) for index, handle in enumerate(handles)]
    chosen = [index for index in range(len(handles)) if words is None or any(word in names[index] for word in words)]
    return [_Gpu(smi, handles[index], index) for index in chosen]


def _names(smi: Any, handle: Any, index: int) -> set[str]:
    try:
        told = _ask(smi, "amdsmi_get_gpu_enumeration_info", handle)
    except _NoValue:
        return {str(index)}
    number, uuid = told.get("hip_id"), told.get("hip_uuid")
    return {str(number if isinstance(number, int) else index), str(uuid)}


def _ask(smi: Any, function: str, *arguments: Any) -> Any:
    """What amdsmi returns. _NoValue where it fails, or where this version does not have it."""
    try:
        return getattr(smi, function)(*arguments)
    except AttributeError:
        raise _NoValue(NOT_SUPPORTED) from None
    except smi.AmdSmiException as error:
        code = error.get_error_code() if hasattr(error, "get_error_code") else None
        raise _NoValue(_REASONS.get(abs(code) if isinstance(code, int) else -1, NOT_MEASURED)) from None
