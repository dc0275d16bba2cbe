"""The checkpoints that a training keeps, by the tiers of its config."""

from __future__ import annotations

from dataclasses import dataclass

from slurmopt.config.checkpoint import Checkpoint
from slurmopt.planning.layout import Work
from slurmopt.planning.models.transformer import Transformer
from slurmopt.planning.states import checkpoint_bytes


@dataclass(frozen=True)
class Kept:
    """The checkpoints in one tier."""

    tier: str
    copies: int
    size: float
    """Bytes of one."""


def kept(checkpoint: Checkpoint, model: Transformer, work: Work, steps: float) -> list[Kept]:
    """What each tier that is on holds at the end of so many steps."""
    size = checkpoint_bytes(model.parameters, work.precision, work.optimizer)
    return [
        Kept(name, tier.keep + tier.best + (int(steps // tier.keep_every) if tier.keep_every else 0), size)
        for name, tier in checkpoint.tiers.items()
    ]
