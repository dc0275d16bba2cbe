"""Helpers for training loops: a sampler that resumes at its position on any number of ranks, and a count of FLOPs.

Each name is loaded when first used, as the sampler imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurmopt.training.accumulation import MicroBatch
    from slurmopt.training.flops import Flops, count_flops
    from slurmopt.training.sampler import ResumableSampler

__all__ = ["Flops", "MicroBatch", "ResumableSampler", "count_flops"]

_HOMES = {
    "Flops": "slurmopt.training.flops",
    "MicroBatch": "slurmopt.training.accumulation",
    "ResumableSampler": "slurmopt.training.sampler",
    "count_flops": "slurmopt.training.flops",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'slurmopt.training' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
