"""What a sampler is told when it starts: where it is, whose node it measures, and where the kernel's files are."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from slurmopt.run_folder import layout
from slurmopt.run_folder.json_values import from_json
from slurmopt.run_folder.layout import RunFolder


@dataclass(frozen=True)
class Roots:
    """Where the kernel shows its files; tests lay out trees of their own."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    cgroup: Path = Path("/sys/fs/cgroup")


@dataclass(frozen=True, kw_only=True)
class Here:
    """The sampler's place in the job."""

    folder: str
    attempt: int
    node: str
    pid: int
    """The rank that started the sampler: local rank 0, or the parent of a pack."""
    pid_started: int | None
    """When that process started, in clock ticks since boot: its number may be another's later."""
    ranks: Sequence[int]
    """The ranks of this node that write heartbeats."""
    every: float
    sources: Sequence[str]
    whole_job: bool = False
    """Whether the whole job on this node is measured, not one step: its command starts steps of its own."""
    handed: Sequence[str] | None = None
    """The folder that the rank keeps open; see `slurmopt.run_folder.access.open_folders.handed_on`."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    roots: Roots = field(default_factory=Roots)

    @property
    def run(self) -> RunFolder:
        """The run's folder."""
        return layout.run_folder(Path(self.folder), self.environ)

    def to_json_arg(self) -> str:
        """It as one argument; environment and roots are not told."""
        names = [item.name for item in fields(self) if item.name not in ("environ", "roots")]
        return json.dumps({name: getattr(self, name) for name in names}, separators=(",", ":"))


def from_word(word: str) -> Here:
    """Parses what `Here.to_json_arg` has written. Raises ValueError if it is invalid."""
    return from_json(Here, word)
