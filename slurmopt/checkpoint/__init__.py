"""Atomic, verified checkpoints: `Checkpointer`, `rng_state` and the DCP storage. Names are imported when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurmopt.checkpoint.checkpointer import Checkpointer
    from slurmopt.checkpoint.dcp.reader import SlurmoptReader
    from slurmopt.checkpoint.dcp.storage import SlurmoptWriter
    from slurmopt.checkpoint.rng import rng_state

__all__ = ["Checkpointer", "SlurmoptReader", "SlurmoptWriter", "rng_state"]
_HOMES = {
    "Checkpointer": "slurmopt.checkpoint.checkpointer",
    "SlurmoptReader": "slurmopt.checkpoint.dcp.reader",
    "SlurmoptWriter": "slurmopt.checkpoint.dcp.storage",
    "rng_state": "slurmopt.checkpoint.rng",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'slurmopt.checkpoint' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
