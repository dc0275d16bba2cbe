"""Checkpoints that are never torn: `Checkpointer`, and what exact resuming needs. Names are loaded when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurmopt.checkpoint.checkpointer import Checkpointer
    from slurmopt.checkpoint.rng import rng_state

__all__ = ["Checkpointer", "rng_state"]
_HOMES = {"Checkpointer": "slurmopt.checkpoint.checkpointer", "rng_state": "slurmopt.checkpoint.rng"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'slurmopt.checkpoint' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
