"""Pieces of a training loop: optimizer steps, schedules, a sampler that resumes on any number of ranks, and more.

Each name is loaded when first used, as the sampler imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurmopt.training.accumulation import MicroBatch
    from slurmopt.training.compilation import checkpoint_activations, compiled
    from slurmopt.training.data_loading.loader import loader
    from slurmopt.training.determinism import deterministic
    from slurmopt.training.early_stopping import EarlyStopping
    from slurmopt.training.ema import Ema
    from slurmopt.training.flops import Flops, count_flops
    from slurmopt.training.noise_scale import NoiseScale
    from slurmopt.training.optimizer_steps.steps import Steps
    from slurmopt.training.replicas import check_replicas
    from slurmopt.training.sampling.sampler import ResumableSampler

__all__ = [
    "EarlyStopping", "Ema", "Flops", "MicroBatch", "NoiseScale", "ResumableSampler", "Steps", "check_replicas",
    "checkpoint_activations", "compiled", "count_flops", "deterministic", "loader",
]  # fmt: skip

_HOMES = {
    "EarlyStopping": "slurmopt.training.early_stopping",
    "Ema": "slurmopt.training.ema",
    "Flops": "slurmopt.training.flops",
    "MicroBatch": "slurmopt.training.accumulation",
    "NoiseScale": "slurmopt.training.noise_scale",
    "ResumableSampler": "slurmopt.training.sampling.sampler",
    "Steps": "slurmopt.training.optimizer_steps.steps",
    "check_replicas": "slurmopt.training.replicas",
    "checkpoint_activations": "slurmopt.training.compilation",
    "compiled": "slurmopt.training.compilation",
    "count_flops": "slurmopt.training.flops",
    "deterministic": "slurmopt.training.determinism",
    "loader": "slurmopt.training.data_loading.loader",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'slurmopt.training' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
