"""A run as the report sees it: its state, its attempts as records of the ledger, and what they were read from."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from slurmopt.ledger.account import account
from slurmopt.ledger.ledger import Ledger
from slurmopt.ledger.record import AttemptRecord
from slurmopt.run_folder.attempts import Attempt
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series.series import Series
from slurmopt.runs.status.query import Status

Place = tuple[str, int]
"""An array task, S-T, and the number of its attempt."""


@dataclass
class AttemptFacts:
    """What the journal tells of an attempt beyond its record."""

    attempt: Attempt
    """Its events: job, nodes, signals, cause, end, hang, what it restored."""
    world_size: int | None = None
    """Its ranks, by their heartbeats; None where no rank wrote one."""
    place: Place | None = None
    """Where it ran, if it is that of a point which an array task started itself."""
    checkpoints: int = 0
    """Checkpoints of it that are durable, each counted once however many tiers have it."""
    checkpoint_bytes: int = 0
    """The bytes that it wrote for checkpoints, on all tiers."""
    checkpoint_seconds: float = 0.0
    """How long these writes took, in the background for the most part: the time in which a training waited for its
    checkpoints is the bucket `checkpoint stall`."""


@dataclass(frozen=True)
class AccountingCheck:
    """The ledger against sacct. Amounts are unit-seconds, as the attempts count: GPU-seconds, or CPU-seconds."""

    charged: float
    """What Slurm's accounting says: ElapsedRaw x gres/gpu (cpu) of AllocTRES, whole seconds."""
    counted: float
    """What the attempts of the same jobs add up to."""
    unit: str
    notes: list[str] = field(default_factory=list)

    @property
    def difference(self) -> float:
        """`charged` - `counted`."""
        return self.charged - self.counted


@dataclass
class RunRecord:
    """A run, read once. Dictionaries are by the number of the attempt."""

    status: Status
    config: dict[str, Any] = field(default_factory=dict)
    """The stored config, unresolved; empty where it cannot be read, or was not asked for."""
    attempts: list[AttemptRecord] = field(default_factory=list)
    """Oldest first."""
    facts: dict[int, AttemptFacts] = field(default_factory=dict)
    heartbeats: dict[int, dict[int, Heartbeat]] = field(default_factory=dict)
    """Attempt → rank → its last heartbeat; only of the ranks that were read."""
    series: dict[int, dict[str, Series]] = field(default_factory=dict)
    """Attempt → node → what its sampler measured; empty where it was not asked for."""
    gpu: str | None = None
    """The name of its GPUs, as NVML tells it to the newest sampler, else their type in the config; None where neither
    is known."""
    accounting: AccountingCheck | None = None
    """The ledger against Slurm's accounting; None where that was not asked for, or has nothing on the run's jobs."""
    problems: list[str] = field(default_factory=list)
    """What could not be read, one line each."""

    @property
    def folder(self) -> RunFolder:
        return self.status.folder

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def id(self) -> str:
        return self.folder.id

    @property
    def label(self) -> str:
        """NAME/ID: what every command takes for RUN."""
        return self.status.label

    @property
    def state(self) -> str:
        """A word of `slurmopt.runs.status.state`."""
        return self.status.state

    @property
    def now(self) -> float:
        """When it was read: the end of what still runs."""
        return self.status.now

    @cached_property
    def ledger(self) -> Ledger:
        """Where its allocated time went."""
        return account(self.attempts)
