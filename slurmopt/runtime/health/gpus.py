"""Which GPUs were promised, and what NVML tells of NVIDIA's.

That needs `pynvml` (the extra `gpu`); without it nothing is told.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from slurmopt.runtime.health.finding import Finding, NotChecked
from slurmopt.runtime.ranks import RankFacts, visible_gpus

CUDA, ROCM, XPU = "cuda", "rocm", "xpu"
_VARIABLES = {
    CUDA: ("CUDA_VISIBLE_DEVICES",),
    # HIP numbers what ROCR has left, and takes CUDA's variable for its own.
    ROCM: ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    XPU: ("ZE_AFFINITY_MASK",),
}
"""A kind of GPU → the variables that show them to a process; the first that is set counts. Slurm may set all."""
_DEVICE = re.compile(r"\d+(\.\d+)?|(GPU|MIG)-[0-9A-Za-z/-]+")


def promised(environ: Mapping[str, str], kind: str = CUDA) -> list[str]:
    """The GPUs that this process was given, in the words of that kind: numbers, UUIDs, or card.tile."""
    devices = next((environ[name] for name in _VARIABLES[kind] if name in environ), None)
    if devices is None:
        return [str(number) for number in range(_on_node(environ, kind))]
    words = [word for word in map(str.strip, devices.split(",")) if _DEVICE.fullmatch(word)]
    if kind == XPU and environ.get("ZE_FLAT_DEVICE_HIERARCHY") == "COMPOSITE":  # the tiles of a card are one device
        return list(dict.fromkeys(word.partition(".")[0] for word in words))
    return words


def any_promised(environ: Mapping[str, str]) -> bool:
    """Whether this process was given any, of whatever kind."""
    return any(promised(environ, kind) for kind in _VARIABLES)


def _on_node(environ: Mapping[str, str], kind: str) -> int:
    count = environ.get("SLURM_GPUS_ON_NODE", "")
    return visible_gpus(environ) if kind == CUDA else int(count) if count.isdigit() else 0


def of_nvidia(environ: Mapping[str, str]) -> list[str]:
    """The promised GPUs that NVML can be asked of."""
    others = [name for kind in (ROCM, XPU) for name in _VARIABLES[kind] if name in environ]
    if "CUDA_VISIBLE_DEVICES" not in environ and others:
        return []
    if os.path.exists("/dev/kfd") and not os.path.exists("/dev/nvidiactl"):  # AMD's, and none of NVIDIA's
        return []
    return promised(environ)


def share(words: list[str], facts: RankFacts) -> list[str]:
    """Those that this rank looks at closely: where the ranks of a node see the same ones, they part them."""
    return words[facts.local_rank :: facts.local_world_size] if len(words) >= facts.local_world_size else words


def look(words: list[str], facts: RankFacts) -> Finding | None:
    """Whether the GPUs answer and can be used. What is wrong with one that can be used is told on standard error."""
    nvml = load_nvml(len(words))
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        if error.value in (nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_NO_PERMISSION):
            raise NotChecked(_unseen(len(words), str(error))) from None
        return Finding(f"none of {len(words)} promised GPUs answers: NVML: {error}")
    try:
        own = share(words, facts)
        return _missing(nvml, words if facts.local_rank == 0 else own) or _faulty(nvml, own)
    finally:
        nvml.nvmlShutdown()


def load_nvml(count: int) -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        raise NotChecked(_unseen(count, "no pynvml here; pip install nvidia-ml-py")) from None


def _unseen(count: int, why: str) -> str:
    return f"NVML cannot look at the {count} promised GPU{'s' * (count != 1)}: {why}"


def _missing(nvml: Any, words: list[str]) -> Finding | None:
    lost = {}
    for word in words:
        try:
            nvml.nvmlDeviceGetUUID(device_handle(nvml, word))
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_NO_PERMISSION:
                lost[word] = str(error)
    if not lost:
        return None
    told = ", ".join(f"GPU {word}: {error}" for word, error in list(lost.items())[:4])
    return Finding(f"{len(words) - len(lost)} of {len(words)} promised GPUs answer ({told})")


def device_handle(nvml: Any, word: str) -> Any:
    """NVML's handle of a promised GPU; of a slice of one (MIG) the GPU's, for that has a memory to fail."""
    if word.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(word))
    if word.startswith("MIG-GPU-"):  # the older form: MIG-GPU-UUID/instance/part
        return nvml.nvmlDeviceGetHandleByUUID(word.removeprefix("MIG-").partition("/")[0])
    handle = nvml.nvmlDeviceGetHandleByUUID(word)
    return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if word.startswith("MIG-") else handle


def _faulty(nvml: Any, words: list[str]) -> Finding | None:
    found = [f"GPU {word}: {fault}" for word in words for fault in _faults(nvml, word)]
    return Finding(", ".join(found[:4])) if found else None


def _faults(nvml: Any, word: str) -> list[str]:
    """What takes a GPU out; what only warns of it is told."""
    handle, found = device_handle(nvml, word), []
    for question, takes_it_out in ((_ecc_errors, False), (_pages, False), (_rows, False), (_failed_rows, True)):
        try:
            fault = question(nvml, handle)
        except nvml.NVMLError as error:
            found += [] if _is_no_answer(nvml, error) else [f"{error}"]
            continue
        if fault and takes_it_out:
            found.append(fault)
        elif fault:
            print(f"slurmopt: health: GPU {word}: {fault}; it is used all the same", file=sys.stderr, flush=True)
    return found


def _is_no_answer(nvml: Any, error: Any) -> bool:
    """Whether this kind of GPU, driver or site tells nothing of that kind."""
    silent = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NO_PERMISSION, nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    return error.value in silent


def _ecc_errors(nvml: Any, handle: Any) -> str | None:
    """Whom they hit has been ended by then; the GPU goes on without the place in its memory."""
    count = nvml.nvmlDeviceGetTotalEccErrors(handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
    return f"{count} uncorrected ECC error{'s' * (count != 1)} since its last reset" if count else None


def _pages(nvml: Any, handle: Any) -> str | None:
    """GPUs before Ampere retire pages of memory."""
    pending = nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)
    return "pages of its memory wait for retirement at the next reset" if pending else None


def _rows(nvml: Any, handle: Any) -> str | None:
    """GPUs since Ampere remap rows, and use none of those that wait for it."""
    _, _, pending, _ = nvml.nvmlDeviceGetRemappedRows(handle)
    return "rows of its memory wait to be remapped at the next reset" if pending else None


def _failed_rows(nvml: Any, handle: Any) -> str | None:
    """Without spare rows the next error hits again: NVIDIA takes such a GPU back."""
    _, _, _, failed = nvml.nvmlDeviceGetRemappedRows(handle)
    return "a row of its memory could not be remapped" if failed else None
