"""Checks the rank's own GPU with a small copy and a kernel, using the torch of the task."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

from slurmopt.checks.result import CheckResult, failed
from slurmopt.job.facts.gpus import CUDA, ROCM, XPU, promised

_NUMBERS = 1 << 20


def torch_of_gpus() -> Any:
    """The torch of the task if it is built for GPUs, else None."""
    if "torch" not in sys.modules and importlib.util.find_spec("torch") is None:
        return None
    import torch

    return None if kind_of(torch) is None else torch


def kind_of(torch: Any) -> str | None:
    """The kind of GPU that this torch is built for; None for a CPU build."""
    if getattr(torch.version, "hip", None):
        return ROCM
    if torch.version.cuda:
        return CUDA
    return XPU if getattr(torch.version, "xpu", None) else None


def run(torch: Any, local_rank: int) -> CheckResult | None:
    """Checks that torch sees all promised GPUs, and that the rank's own GPU copies and computes."""
    kind = kind_of(torch) or CUDA
    words, gpus = promised(os.environ, kind), torch.xpu if kind == XPU else torch.cuda
    count = gpus.device_count()
    if not count or (count < len(words) and not _is_slice(gpus, words)):
        return failed("GPU", f"{count} of {len(words)} promised GPUs answer torch")
    number = local_rank % count
    name = words[number] if number < len(words) else number
    try:
        right = _right(torch, torch.device("xpu" if kind == XPU else "cuda", number))
    except RuntimeError as error:  # also torch.AcceleratorError, torch.OutOfMemoryError
        return failed("GPU", f"GPU {name}: a copy and a small kernel failed: {_why(torch, error)}")
    return None if right else failed("GPU", f"GPU {name}: a copy and a small kernel gave wrong numbers")


def _is_slice(gpus: Any, words: list[str]) -> bool:
    """Whether the GPUs are MIG slices, of which a process can use only the first. Device numbers do not show this."""
    return any(word.startswith("MIG-") for word in words) or " MIG " in str(gpus.get_device_name(0))


def _right(torch: Any, device: Any) -> bool:
    """Computes with integers, whose exact result is the same everywhere, and without consuming random numbers."""
    sent = torch.arange(_NUMBERS, dtype=torch.int64, device="cpu")
    got = (sent.to(device) * 3 + 1).to("cpu")
    return bool(torch.equal(got, sent * 3 + 1))


def _why(torch: Any, error: RuntimeError) -> str:
    if isinstance(error, torch.OutOfMemoryError):  # for 24 MB: not the training's own doing
        return "its memory is full: another process is on it"
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
