"""Finds the GPUs that a process was given, and loads NVML."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping
from typing import Any

from slurmopt.job.facts.rank_facts import RankFacts, visible_gpus

CUDA, ROCM, XPU = "cuda", "rocm", "xpu"
_VARIABLES = {
    CUDA: ("CUDA_VISIBLE_DEVICES",),
    # HIP numbers what ROCR has left, and takes CUDA's variable for its own.
    ROCM: ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    XPU: ("ZE_AFFINITY_MASK",),
}
"""The environment variables that list the GPUs of a process, by kind of GPU. The first that is set counts; Slurm may
set all."""
_DEVICE = re.compile(r"\d+(\.\d+)?|(GPU|MIG)-[0-9A-Za-z/-]+")


def promised(environ: Mapping[str, str], kind: str = CUDA) -> list[str]:
    """The GPUs that this process was given, as the variables of that kind name them: numbers, UUIDs, or card.tile."""
    devices = next((environ[name] for name in _VARIABLES[kind] if name in environ), None)
    if devices is None:
        return [str(number) for number in range(_on_node(environ, kind))]
    words = [word for word in map(str.strip, devices.split(",")) if _DEVICE.fullmatch(word)]
    if kind == XPU and environ.get("ZE_FLAT_DEVICE_HIERARCHY") == "COMPOSITE":  # the tiles of a card are one device
        return list(dict.fromkeys(word.partition(".")[0] for word in words))
    return words


def any_promised(environ: Mapping[str, str]) -> bool:
    """Whether this process was given any GPU."""
    return any(promised(environ, kind) for kind in _VARIABLES)


def _on_node(environ: Mapping[str, str], kind: str) -> int:
    count = environ.get("SLURM_GPUS_ON_NODE", "")
    return visible_gpus(environ) if kind == CUDA else int(count) if count.isdigit() else 0


def of_nvidia(environ: Mapping[str, str]) -> list[str]:
    """The promised GPUs that NVML knows."""
    others = [name for kind in (ROCM, XPU) for name in _VARIABLES[kind] if name in environ]
    if "CUDA_VISIBLE_DEVICES" not in environ and others:
        return []
    if os.path.exists("/dev/kfd") and not os.path.exists("/dev/nvidiactl"):  # AMD's, and none of NVIDIA's
        return []
    return promised(environ)


def share(words: list[str], facts: RankFacts) -> list[str]:
    """The GPUs that this rank checks closely. If the ranks of a node see the same GPUs, they divide them."""
    return words[facts.local_rank :: facts.local_world_size] if len(words) >= facts.local_world_size else words


def of_rank(environ: Mapping[str, str], facts: RankFacts) -> list[str]:
    """The GPUs that this rank uses, as the environment names them; empty if it was given none."""
    return share(of_nvidia(environ) or promised(environ, ROCM) or promised(environ, XPU), facts)


def uuids(words: list[str]) -> list[str]:
    """`words` with the UUID in place of each number that NVML knows. The numbers of two ranks may be of the same GPU or
    not, as Slurm may show each rank its own GPU alone. A driver may take seconds to answer."""
    module = nvml()
    if module is None or not hasattr(module, "nvmlDeviceGetUUID") or not any(map(str.isdigit, words)):
        return words
    try:
        module.nvmlInit()
    except module.NVMLError:  # no NVIDIA driver
        return words
    try:
        return [_uuid(module, word) if word.isdigit() else word for word in words]
    finally:
        module.nvmlShutdown()


def _uuid(nvml: Any, word: str) -> str:
    try:
        return str(nvml.nvmlDeviceGetUUID(device_handle(nvml, word)))
    except nvml.NVMLError:
        return word


def nvml() -> Any | None:
    """The module `pynvml`, not initialised; None where it is not installed (the extra `gpu` brings it), or where
    another package has a module of that name."""
    try:
        module = importlib.import_module("pynvml")
    except ImportError:
        return None
    return module if hasattr(module, "nvmlInit") else None


def device_handle(nvml: Any, word: str) -> Any:
    """NVML's handle of a promised GPU. For a MIG slice that of its GPU, whose memory can fail."""
    if word.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(word))
    if word.startswith("MIG-GPU-"):  # the older form: MIG-GPU-UUID/instance/part
        return nvml.nvmlDeviceGetHandleByUUID(word.removeprefix("MIG-").partition("/")[0])
    handle = nvml.nvmlDeviceGetHandleByUUID(word)
    return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if word.startswith("MIG-") else handle
