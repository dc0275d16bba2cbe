"""The checkpoint tiers of a run, from its config."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from slurmopt.config.checkpoint import Checkpoint
from slurmopt.config.tiers import Tier as Rule
from slurmopt.run_folder.layout import RunFolder
from slurmopt.storage.kinds import KINDS, Kind
from slurmopt.storage.store import Store
from slurmopt.units import seconds

SMALL_SECONDS = 60.0
"""The deadline of operations on small files, so that an unreachable tier is noticed soon."""
_RULES = tuple(item.name for item in fields(Rule))


@dataclass(frozen=True)
class Tier:
    """One tier. `deadline` is seconds for one save; the other fields are those of the config."""

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
    kind: Kind
    options: dict[str, Any] = field(default_factory=dict)
    """The options of this kind of storage."""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Tier:
        """The inverse of `dataclasses.asdict`: how a writer process receives its tiers."""
        return cls(**{**values, "kind": Kind(**values["kind"])})

    @property
    def node_local(self) -> bool:
        """Whether each node has its own storage, which other nodes cannot read."""
        return self.kind.node_local

    def store(self, longest: float | None = None) -> Store:
        """Its store; nothing is connected or created yet. `longest`: seconds per call, where less than `deadline`."""
        return self.kind.open(self.root, deadline=min(self.deadline, longest or self.deadline), **self.options)


def tiers_of(config: Checkpoint, run: RunFolder) -> list[Tier]:
    """The enabled tiers, fastest first."""
    return [_tier(config, KINDS[name], rule, run) for name, rule in config.tiers.items()]


def _tier(config: Checkpoint, kind: Kind, rule: Rule, run: RunFolder) -> Tier:
    rules: dict[str, Any] = {word: getattr(rule, word) for word in _RULES}
    return Tier(
        name=kind.name,
        root=_root(kind, str(rule.place), run),
        deadline=float(seconds(config.deadline)),
        metric=config.metric,
        mode=config.mode,
        kind=kind,
        options=rule.options,
        **rules,
    )


def _root(kind: Kind, place: str, run: RunFolder) -> str:
    """The run's own folder or prefix below the configured place."""
    if place == "auto":
        return str(run.checkpoints)
    if not kind.is_folder:
        return f"{place.rstrip('/')}/{run.name}/{run.id}"
    return str(Path(os.path.abspath(Path(place).expanduser())) / run.name / run.id)
