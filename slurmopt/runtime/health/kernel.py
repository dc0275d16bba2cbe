"""A small copy and a kernel on the rank's own GPU, by the torch that the task uses anyway."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

from slurmopt.runtime.health.finding import Finding
from slurmopt.runtime.health.gpus import promised

_NUMBERS = 1 << 20


def torch_of_gpus() -> Any:
    """The task's torch where it is made for GPUs; None where there is none, or a CPU build."""
    if "torch" not in sys.modules and importlib.util.find_spec("torch") is None:
        return None
    import torch

    return torch if torch.version.cuda or getattr(torch.version, "hip", None) else None


def run(torch: Any, local_rank: int) -> Finding | None:
    """Whether torch sees all promised GPUs, and the rank's own one copies and computes."""
    words, count = promised(os.environ), torch.cuda.device_count()
    if count < len(words):
        return Finding(f"{count} of {len(words)} promised GPUs answer torch")
    number = local_rank % count
    try:
        right = _right(torch, torch.device("cuda", number))
    except RuntimeError as error:  # also torch.AcceleratorError, torch.OutOfMemoryError
        return Finding(f"GPU {words[number]}: a copy and a small kernel failed: {_why(torch, error)}")
    return None if right else Finding(f"GPU {words[number]}: a copy and a small kernel gave wrong numbers")


def _right(torch: Any, device: Any) -> bool:
    """Whole numbers, so that the right result is one and the same everywhere; no random ones are used up."""
    sent = torch.arange(_NUMBERS, dtype=torch.int64, device="cpu")
    got = (sent.to(device) * 3 + 1).to("cpu")
    return bool(torch.equal(got, sent * 3 + 1))


def _why(torch: Any, error: RuntimeError) -> str:
    if isinstance(error, torch.cuda.OutOfMemoryError):  # for 24 MB: not the training's own doing
        return "its memory is full: another process is on it"
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
