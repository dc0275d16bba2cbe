"""Checks that the promised NVIDIA GPUs answer and can be used, with NVML.

That needs `pynvml` (the extra `gpu`); without it nothing is told.
"""

from __future__ import annotations

import sys
from typing import Any

from slurmopt.checks.result import CheckResult, NotChecked, failed
from slurmopt.job.facts import gpus
from slurmopt.job.facts.rank_facts import RankFacts


def look(words: list[str], facts: RankFacts) -> CheckResult | None:
    """Checks that the GPUs answer and can be used. Problems of a GPU that can be used are printed to standard error."""
    nvml = _load_nvml(len(words))
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        if error.value in (nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_NO_PERMISSION):
            raise NotChecked(_unseen(len(words), str(error))) from None
        return failed("GPUs", f"none of {len(words)} promised GPUs answers: NVML: {error}")
    try:
        own = gpus.share(words, facts)
        return _missing(nvml, words if facts.local_rank == 0 else own) or _faulty(nvml, own)
    finally:
        nvml.nvmlShutdown()


def _load_nvml(count: int) -> Any:
    nvml = gpus.nvml()
    if nvml is None:
        raise NotChecked(_unseen(count, "no pynvml here; pip install nvidia-ml-py"))
    return nvml


def _unseen(count: int, why: str) -> str:
    return f"NVML cannot look at the {count} promised GPU{'s' * (count != 1)}: {why}"


def _missing(nvml: Any, words: list[str]) -> CheckResult | None:
    lost = {}
    for word in words:
        try:
            nvml.nvmlDeviceGetUUID(gpus.device_handle(nvml, word))
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_NO_PERMISSION:
                lost[word] = str(error)
    if not lost:
        return None
    errors = ", ".join(f"GPU {word}: {error}" for word, error in list(lost.items())[:4])
    return failed("GPUs", f"{len(words) - len(lost)} of {len(words)} promised GPUs answer ({errors})")


def _faulty(nvml: Any, words: list[str]) -> CheckResult | None:
    faults = [f"GPU {word}: {fault}" for word in words for fault in _faults(nvml, word)]
    return failed("GPUs", ", ".join(faults[:4])) if faults else None


def _faults(nvml: Any, word: str) -> list[str]:
    """The problems that make a GPU unusable. Others are printed to standard error."""
    handle, faults = gpus.device_handle(nvml, word), []
    for question, takes_it_out in ((_ecc_errors, False), (_pages, False), (_rows, False), (_failed_rows, True)):
        try:
            fault = question(nvml, handle)
        except nvml.NVMLError as error:
            faults += [] if _is_no_answer(nvml, error) else [f"{error}"]
            continue
        if fault and takes_it_out:
            faults.append(fault)
        elif fault:
            print(f"slurmopt: health: GPU {word}: {fault}; it is used anyway", file=sys.stderr, flush=True)
    return faults


def _is_no_answer(nvml: Any, error: Any) -> bool:
    """Whether the error says that this GPU, driver or site does not give that information."""
    silent = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NO_PERMISSION, nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    return error.value in silent


def _ecc_errors(nvml: Any, handle: Any) -> str | None:
    """The processes that they hit have been ended by then; the GPU no longer uses that part of its memory."""
    count = nvml.nvmlDeviceGetTotalEccErrors(handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
    return f"{count} uncorrected ECC error{'s' * (count != 1)} since its last reset" if count else None


def _pages(nvml: Any, handle: Any) -> str | None:
    """Pending page retirements; GPUs before Ampere retire pages of memory."""
    pending = nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)
    return "pages of its memory wait for retirement at the next reset" if pending else None


def _rows(nvml: Any, handle: Any) -> str | None:
    """Pending row remappings. GPUs since Ampere remap rows, and do not use rows whose remapping is pending."""
    _, _, pending, _ = nvml.nvmlDeviceGetRemappedRows(handle)
    return "rows of its memory wait to be remapped at the next reset" if pending else None


def _failed_rows(nvml: Any, handle: Any) -> str | None:
    """Failed row remappings: there are no spare rows left, so the next error hits again. NVIDIA replaces such a GPU."""
    _, _, _, failed = nvml.nvmlDeviceGetRemappedRows(handle)
    return "a row of its memory could not be remapped" if failed else None
