"""Checkpoints that are never torn: `Checkpointer`, and what exact resuming needs. Names are loaded when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurmopt.checkpoint.checkpointer import Checkpointer
    from slurmopt.checkpoint.dcp import SlurmoptWriter
    from slurmopt.checkpoint.dcp_reader import SlurmoptReader
    from slurmopt.checkpoint.rng import rng_state

__all__ = ["Checkpointer", "SlurmoptReader", "SlurmoptWriter", "rng_state"]
_HOMES = {
    "Checkpointer": "slurmopt.checkpoint.checkpointer",
    "SlurmoptReader": "slurmopt.checkpoint.dcp_reader",
    "SlurmoptWriter": "slurmopt.checkpoint.dcp",
    "rng_state": "slurmopt.checkpoint.rng",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'slurmopt.checkpoint' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
