"""The places that a run's checkpoints go to, from its config."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurmopt.config.checkpoint import Checkpoint
from slurmopt.config.tiers import Tier as Rule
from slurmopt.run_folder.layout import RunFolder
from slurmopt.storage.folder import FolderStore
from slurmopt.storage.store import Store
from slurmopt.units import seconds

SMALL_SECONDS = 60.0
"""How long a small file may take: nobody wants to wait ten minutes to hear that S3 is away."""
_RULES = ("every", "keep", "keep_every", "best", "compression")
_S3_WORDS = ("endpoint", "region", "storage_class", "kms_key", "tags", "accelerate", "requester_pays")


@dataclass(frozen=True)
class Tier:
    """One place. `deadline` is seconds for one save; the other fields are those of the config."""

    name: str
    root: str
    deadline: float
    every: str
    keep: int
    keep_every: int | None
    best: int
    metric: str | None
    mode: str
    compression: str | None
    s3: dict[str, Any] = field(default_factory=dict)

    @property
    def node_local(self) -> bool:
        """Whether each node has its own: then what one node wrote no other can read."""
        return self.name == "scratch"

    def store(self, longest: float | None = None) -> Store:
        """A way to it; nothing is connected or made yet. `longest`: seconds that a call may take, less than usual."""
        if self.name != "s3":
            return FolderStore(Path(self.root))
        from slurmopt.storage.s3 import S3Store

        return S3Store(self.root, deadline=min(self.deadline, longest or self.deadline), **self.s3)


def tiers_of(config: Checkpoint, run: RunFolder) -> list[Tier]:
    """The tiers that are on, fastest first."""
    return [_tier(config, name, rule, run) for name, rule in config.tiers.items()]


def _tier(config: Checkpoint, name: str, rule: Rule, run: RunFolder) -> Tier:
    rules: dict[str, Any] = {word: getattr(rule, word) for word in _RULES}
    return Tier(
        name=name,
        root=_root(name, str(rule.place), run),
        deadline=float(seconds(config.deadline)),
        metric=config.metric,
        mode=config.mode,
        s3={word: getattr(rule, word) for word in _S3_WORDS} if name == "s3" else {},
        **rules,
    )


def _root(name: str, place: str, run: RunFolder) -> str:
    """The run's own part of a place that runs share."""
    if name == "shared" and place == "auto":
        return str(run.checkpoints)
    if name == "s3":
        return f"{place.rstrip('/')}/{run.name}/{run.id}"
    return str(Path(os.path.abspath(Path(place).expanduser())) / run.name / run.id)
