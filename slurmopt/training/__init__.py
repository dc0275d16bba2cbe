"""What a training loop needs beside the model: so far, a sampler that goes on where it was.

Each name is loaded when first used, as the sampler imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurmopt.training.sampler import ResumableSampler

__all__ = ["ResumableSampler"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'slurmopt.training' has no attribute {name!r}")
    from slurmopt.training import sampler

    return getattr(sampler, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
