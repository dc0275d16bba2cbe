"""What NVML tells of the promised GPUs. Needs `pynvml` (the extra `gpu`); without it nothing is told."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

from slurmopt.runtime.health.finding import Finding, NotChecked
from slurmopt.runtime.ranks import RankFacts, visible_gpus

_DEVICE = re.compile(r"\d+|(GPU|MIG)-[0-9A-Za-z/-]+")


def promised(environ: Mapping[str, str]) -> list[str]:
    """The GPUs that this process was given, in CUDA's words: numbers or UUIDs."""
    devices = environ.get("CUDA_VISIBLE_DEVICES")
    if devices is None:
        return [str(number) for number in range(visible_gpus(environ))]
    return [word for word in map(str.strip, devices.split(",")) if _DEVICE.fullmatch(word)]


def share(words: list[str], facts: RankFacts) -> list[str]:
    """Those that this rank looks at closely: where the ranks of a node see the same ones, they part them."""
    return words[facts.local_rank :: facts.local_world_size] if len(words) >= facts.local_world_size else words


def look(words: list[str], facts: RankFacts) -> Finding | None:
    """Whether the GPUs answer and are free of faults."""
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
        raise NotChecked(_unseen(count, "no pynvml here; pip install 'slurmopt[gpu]'")) from None


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
    if word.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(word))
    handle = nvml.nvmlDeviceGetHandleByUUID(word)
    # Of a slice of a GPU it is the GPU that has a memory to fail.
    return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if word.startswith("MIG-") else handle


def _faulty(nvml: Any, words: list[str]) -> Finding | None:
    found = [f"GPU {word}: {fault}" for word in words for fault in _faults(nvml, word)]
    return Finding(", ".join(found[:4])) if found else None


def _faults(nvml: Any, word: str) -> list[str]:
    handle = device_handle(nvml, word)
    found = []
    for question in (_ecc_errors, _pages, _rows):
        try:
            fault = question(nvml, handle)
        except nvml.NVMLError as error:
            fault = None if _is_no_answer(nvml, error) else f"{error}"
        found += [fault] if fault else []
    return found


def _is_no_answer(nvml: Any, error: Any) -> bool:
    """Whether this kind of GPU, driver or site tells nothing of that kind."""
    silent = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NO_PERMISSION, nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    return error.value in silent


def _ecc_errors(nvml: Any, handle: Any) -> str | None:
    count = nvml.nvmlDeviceGetTotalEccErrors(handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
    return f"{count} uncorrected ECC error{'s' * (count != 1)} since its last reset" if count else None


def _pages(nvml: Any, handle: Any) -> str | None:
    """GPUs before Ampere retire pages of memory."""
    pending = nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)
    return "pages of its memory wait for retirement at the next reset" if pending else None


def _rows(nvml: Any, handle: Any) -> str | None:
    """GPUs since Ampere remap rows."""
    _, _, pending, failed = nvml.nvmlDeviceGetRemappedRows(handle)
    if failed:
        return "a row of its memory could not be remapped"
    return "rows of its memory wait to be remapped at the next reset" if pending else None
