"""Finds the GPUs and MIG slices that this job was given, among those that NVML shows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from slurmopt.job.facts.gpus import any_promised, of_nvidia
from slurmopt.job.monitor.sources.nvidia.library import MEMORY_V2, Library, NoValue

_ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada", 9: "Hopper",
    10: "Blackwell", 13: "Rubin",
}  # fmt: skip


@dataclass(frozen=True)
class Device:
    """A GPU of this job, or a MIG slice of one."""

    index: int
    """Its number in the names of columns: NVML's own; where MIG slices are among the job's GPUs, its place."""
    handle: Any
    """NVML's handle; for a slice that of the slice."""
    gpu: Any
    """NVML's handle of the whole GPU."""
    gpu_index: int
    """NVML's number of the whole GPU."""
    uuid: str
    instance: tuple[int, int] | None = None
    """For a MIG slice the ids of its GPU instance and compute instance."""


def granted(environ: Mapping[str, str]) -> list[str] | None:
    """The NVIDIA GPUs of this job, as its environment names them. None means all of this machine: outside of Slurm,
    where no variable names any."""
    if words := of_nvidia(environ):
        return words
    if "CUDA_VISIBLE_DEVICES" in environ or "SLURM_JOB_ID" in environ or any_promised(environ):
        return []
    return None if os.path.exists("/dev/nvidiactl") else []


def find(nvml: Library, words: list[str] | None) -> tuple[list[Device], list[str]]:
    """The devices of these words, in NVML's order, and notes on words without a device, one line each.

    CUDA numbers GPUs of one kind as NVML does, by their place on the bus. Of different kinds its first is the fastest,
    unless CUDA_DEVICE_ORDER is PCI_BUS_ID.
    """
    gpus = _gpus(nvml)
    chosen, notes = (gpus, []) if words is None else _of_words(nvml, gpus, words)
    devices = [each for device in chosen for each in _with_slices(nvml, device)]
    devices = sorted({device.uuid: device for device in devices}.values(), key=_place)
    if any(device.instance for device in devices):
        devices = [replace(device, index=index) for index, device in enumerate(devices)]
    return devices, notes


def facts(nvml: Library, device: Device) -> dict[str, Any]:
    """What does not change: see docs/gpu-monitoring.md. None where NVML does not tell."""

    def told(*calls: tuple[Any, ...]) -> Any:
        try:
            return nvml.first(*calls)
        except NoValue:
            return None

    handle = device.handle
    memory = told(("nvmlDeviceGetMemoryInfo", handle, MEMORY_V2), ("nvmlDeviceGetMemoryInfo", handle))
    limit = None if device.instance else told(("nvmlDeviceGetEnforcedPowerLimit", handle))
    pci = told(("nvmlDeviceGetPciInfo", device.gpu))
    return {
        "index": device.index,
        "uuid": device.uuid,
        "name": _string(told(("nvmlDeviceGetName", handle))),
        "memory": None if memory is None else int(memory.total),
        "power_limit": None if limit is None else limit / 1000,
        "mig": device.instance
        and {"gpu": device.gpu_index, "instance": device.instance[0], "part": device.instance[1]},
        "architecture": _ARCHITECTURES.get(told(("nvmlDeviceGetArchitecture", device.gpu))),
        "pci": None if pci is None else _string(pci.busId),
    }


def _place(device: Device) -> tuple[int, tuple[int, int]]:
    return device.gpu_index, device.instance or (-1, -1)


def _gpus(nvml: Library) -> list[Device]:
    """The GPUs that this process can open; a cgroup may keep it from the others."""
    found = []
    for index in range(nvml.ask("nvmlDeviceGetCount")):
        try:
            handle = nvml.ask("nvmlDeviceGetHandleByIndex", index)
            found.append(Device(index, handle, handle, index, _string(nvml.ask("nvmlDeviceGetUUID", handle)) or "?"))
        except NoValue:
            continue
    return found


def _of_words(nvml: Library, gpus: list[Device], words: list[str]) -> tuple[list[Device], list[str]]:
    found: list[Device] = []
    unknown = []
    for word in words:
        device = _of_word(nvml, gpus, word)
        found += [device] if device else []
        unknown += [] if device else [word]
    if unknown and len(gpus) == len(words):  # the numbers are the node's, and a cgroup shows the job's GPUs alone
        return gpus, []
    notes = [f"no GPU that NVML shows is {word}, of CUDA_VISIBLE_DEVICES: it is not measured" for word in unknown]
    if _ambiguous(nvml, gpus, words):
        notes.append("the GPUs of this node are of different kinds, which CUDA may number in another order than NVML: "
                     "set CUDA_DEVICE_ORDER=PCI_BUS_ID")  # fmt: skip
    return found, notes


def _of_word(nvml: Library, gpus: list[Device], word: str) -> Device | None:
    if word.isdigit():
        return gpus[int(word)] if int(word) < len(gpus) else None
    if word.startswith("MIG-GPU-"):  # the older form: MIG-GPU-UUID/instance/part
        uuid, _, instance = word.removeprefix("MIG-").partition("/")
        parents = [device for device in gpus if device.uuid == uuid]
        slices = [device for parent in parents for device in _with_slices(nvml, parent)]
        return next(
            (each for each in slices if each.instance and f"{each.instance[0]}/{each.instance[1]}" == instance), None
        )
    if word.startswith("MIG-"):
        return _of_slice(nvml, gpus, word)
    return next((device for device in gpus if device.uuid.startswith(word)), None)  # CUDA takes a UUID's beginning


def _of_slice(nvml: Library, gpus: list[Device], uuid: str) -> Device | None:
    slices = [device for gpu in gpus for device in _with_slices(nvml, gpu)]
    return next((device for device in slices if device.uuid == uuid), None)


def _with_slices(nvml: Library, device: Device) -> list[Device]:
    """The MIG slices that this process can open of a GPU in MIG mode; otherwise the GPU."""
    try:
        if device.instance or nvml.ask("nvmlDeviceGetMigMode", device.gpu)[0] != 1:
            return [device]
        most = nvml.ask("nvmlDeviceGetMaxMigDeviceCount", device.gpu)
    except NoValue:
        return [device]
    slices = []
    for number in range(most):
        try:
            slices.append(_slice(nvml, device, nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", device.gpu, number)))
        except NoValue:  # none of that number, or one of another job
            continue
    return slices or [device]


def _slice(nvml: Library, device: Device, handle: Any) -> Device:
    instance = nvml.ask("nvmlDeviceGetGpuInstanceId", handle), nvml.ask("nvmlDeviceGetComputeInstanceId", handle)
    uuid = _string(nvml.ask("nvmlDeviceGetUUID", handle)) or "?"
    return replace(device, handle=handle, uuid=uuid, instance=instance)


def _ambiguous(nvml: Library, gpus: list[Device], words: list[str]) -> bool:
    if os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len(words) >= len(gpus):
        return False
    if not any(word.isdigit() for word in words):
        return False
    names = set()
    for device in gpus:
        try:
            names.add(_string(nvml.ask("nvmlDeviceGetName", device.handle)))
        except NoValue:
            return False
    return len(names) > 1


def _string(value: Any) -> str | None:
    if isinstance(value, bytes):  # from an nvidia-ml-py before 11.515
        return value.decode(errors="replace")
    return None if value is None else str(value)
