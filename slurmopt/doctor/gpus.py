"""Checks of the NVIDIA GPUs of this machine, by NVML: whether they answer; memory, modes, clocks, links and users."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from statistics import mode
from typing import Any

from slurmopt.checks.result import FAIL, PASS, WARN, CheckResult, NotChecked
from slurmopt.job.facts.gpus import nvml

_SLOWDOWNS = (
    ("nvmlClocksThrottleReasonHwThermalSlowdown", "it is too hot"),
    ("nvmlClocksThrottleReasonHwPowerBrakeSlowdown", "the power supply asks for it"),
    ("nvmlClocksThrottleReasonHwSlowdown", "the hardware protects itself"),
)


def gpus() -> Iterator[CheckResult]:
    """All findings about the GPUs. NotChecked without NVML, a driver or GPUs."""
    module = nvml()
    if module is None:
        raise NotChecked("no pynvml here; pip install nvidia-ml-py")
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        if os.path.exists("/proc/driver/nvidia"):
            yield CheckResult("GPUs", FAIL, f"NVML: {error}", "nvidia-smi; dmesg | grep -i nvrm")
            return
        raise NotChecked(f"NVML: {error}") from error
    try:
        yield from _of_machine(module)
    finally:
        module.nvmlShutdown()


def _of_machine(module: Any) -> Iterator[CheckResult]:
    count = module.nvmlDeviceGetCount()
    present = len(os.listdir("/proc/driver/nvidia/gpus")) if os.path.isdir("/proc/driver/nvidia/gpus") else count
    names: list[str] = []
    links: dict[int, int] = {}
    for index in range(count):
        try:
            handle = module.nvmlDeviceGetHandleByIndex(index)
        except module.NVMLError as error:
            yield CheckResult("GPUs", FAIL, f"GPU {index}: {error}", f"nvidia-smi -i {index}; drain the node")
            continue
        names.append(_name(module, handle))
        links[index] = _active_links(module, handle)
        for look in (_memory_errors, _persistence, _slowdown, _mig, _users, _pcie):
            if (found := _asked(module, look, handle, index)) is not None:
                yield found
    yield from _fewer_links(links)
    if count < present:
        text = f"NVML sees {count} of {present} GPUs: the others fell off the bus, or a job step was given fewer"
        yield CheckResult("GPUs", WARN, text, "dmesg | grep -i 'fallen off the bus'")
    else:
        yield CheckResult("GPUs", PASS, f"{count}: {', '.join(dict.fromkeys(names))}")


def _name(module: Any, handle: Any) -> str:
    name = module.nvmlDeviceGetName(handle)
    return name.decode() if isinstance(name, bytes) else str(name)


def _asked(
    module: Any, look: Callable[[Any, Any, int], CheckResult | None], handle: Any, index: int
) -> CheckResult | None:
    """None also where this GPU, driver or site does not tell."""
    try:
        return look(module, handle, index)
    except module.NVMLError:
        return None


def _memory_errors(module: Any, handle: Any, index: int) -> CheckResult | None:
    count = module.nvmlDeviceGetTotalEccErrors(
        handle, module.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, module.NVML_VOLATILE_ECC
    )
    if not count:
        return None
    text = f"GPU {index}: {count} uncorrected memory errors since its last reset"
    return CheckResult("GPU memory", WARN, text, f"nvidia-smi -q -d ECC,ROW_REMAPPER -i {index}")


def _persistence(module: Any, handle: Any, index: int) -> CheckResult | None:
    if module.nvmlDeviceGetPersistenceMode(handle) == module.NVML_FEATURE_ENABLED:
        return None
    text = f"GPU {index}: persistence mode is off: each start of a job loads the driver again, which takes seconds"
    return CheckResult("GPU persistence", WARN, text, "systemctl enable --now nvidia-persistenced")


def _slowdown(module: Any, handle: Any, index: int) -> CheckResult | None:
    reasons = module.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    for name, why in _SLOWDOWNS:
        if reasons & getattr(module, name, 0):
            mend = f"nvidia-smi -q -d PERFORMANCE -i {index}"
            return CheckResult("GPU clocks", WARN, f"GPU {index} is slowed down: {why}", mend)
    return None


def _mig(module: Any, handle: Any, index: int) -> CheckResult | None:
    current, pending = module.nvmlDeviceGetMigMode(handle)
    if current == pending:
        return None
    text = f"GPU {index}: its MIG mode changes at the next reset"
    return CheckResult("MIG", WARN, text, f"nvidia-smi --gpu-reset -i {index}")


def _active_links(module: Any, handle: Any) -> int:
    """The NVLinks of the GPU that are up."""
    active = 0
    for link in range(module.NVML_NVLINK_MAX_LINKS):
        try:
            active += module.nvmlDeviceGetNvLinkState(handle, link) == module.NVML_FEATURE_ENABLED
        except module.NVMLError:  # the GPU has no such link
            break
    return active


def _fewer_links(links: dict[int, int]) -> Iterator[CheckResult]:
    """GPUs of which fewer NVLinks are up than of most others. NVML does not tell how many should be: a card with a
    bridge has links that are never up."""
    if not links:
        return
    usual = mode(links.values())
    for index, active in links.items():
        if active < usual:
            text = f"GPU {index} has {active} NVLinks that are up, the others have {usual}"
            yield CheckResult("GPU links", FAIL, text, f"nvidia-smi nvlink -s -i {index}; drain the node")
    if usual and all(active == usual for active in links.values()):
        yield CheckResult("GPU links", PASS, f"{usual} NVLinks are up on each GPU")


def _pcie(module: Any, handle: Any, index: int) -> CheckResult | None:
    """The width alone: the speed of a link falls while nothing is transferred."""
    width, most = module.nvmlDeviceGetCurrPcieLinkWidth(handle), module.nvmlDeviceGetMaxPcieLinkWidth(handle)
    if width >= most:
        return None
    text = f"GPU {index} is connected by {width} of {most} PCIe lanes"
    return CheckResult(
        "GPU links", WARN, text, f"nvidia-smi -q -d PCIE -i {index}; the card may have to be seated anew"
    )


def _users(module: Any, handle: Any, index: int) -> CheckResult | None:
    processes = module.nvmlDeviceGetComputeRunningProcesses(handle)
    if not processes:
        return None
    pids = ",".join(str(process.pid) for process in processes[:4])
    return CheckResult("GPU processes", WARN, f"GPU {index} is used by process {pids}", f"ps -fp {pids}")
