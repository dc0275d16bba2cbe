"""Where checkpoints go and how often."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(kw_only=True)
class Checkpoint:
    """Reserved: training code saves into `$SLURMOPT_RUN_FOLDER/checkpoints` by itself for now."""
