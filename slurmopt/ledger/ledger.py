"""The ledger of a run: its allocated time in buckets. All amounts are integer GPU-milliseconds (CPU-milliseconds
where `unit` says so), so that sums are exact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from slurmopt.ledger.buckets import BUCKETS

HOUR = 3_600_000
"""Milliseconds."""


@dataclass
class Account:
    """An amount of allocated time in buckets. `buckets` has those that are not 0; they sum to `allocated`."""

    allocated: int = 0
    buckets: dict[str, int] = field(default_factory=dict)

    def add(self, amounts: Mapping[str, int]) -> None:
        """Adds amounts to the buckets and to what is allocated."""
        for bucket, amount in amounts.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + amount
            self.allocated += amount

    def __getitem__(self, bucket: str) -> int:
        """The amount in a bucket; 0 where it has none."""
        return self.buckets.get(bucket, 0)

    @property
    def hours(self) -> float:
        """The allocated GPU-hours."""
        return self.allocated / HOUR

    def hours_in(self, bucket: str) -> float:
        """The GPU-hours in a bucket."""
        return self[bucket] / HOUR

    def share(self, bucket: str) -> float:
        """The share of the allocation that is in a bucket, 0 to 1; 0 where nothing is allocated."""
        return self[bucket] / self.allocated if self.allocated else 0.0

    def in_order(self) -> Iterable[tuple[str, int]]:
        """The buckets that are not empty, in the order in which they are printed."""
        return [(bucket, self.buckets[bucket]) for bucket in BUCKETS if self.buckets.get(bucket)]


@dataclass
class AttemptLedger(Account):
    """The ledger of one attempt."""

    number: int = 0
    start: float = 0.0
    end: float = 0.0
    """Seconds since the epoch; now, while it runs."""
    unit: str = "GPU"
    cause: str | None = None
    alive: bool = False
    nodes: dict[str, Account] = field(default_factory=dict)
    """Node → its account; they sum to that of the attempt."""
    ranks: dict[int, Account] = field(default_factory=dict)
    """Rank → its account. What no rank held is missing here."""
    phases: dict[str, int] = field(default_factory=dict)
    """The named phases in the bucket `evaluation and named phases`, which they sum to."""
    queue_seconds: float | None = None
    """How long it waited in the queue, in seconds of the wall clock; not part of the allocation."""
    lost_since: float | None = None
    """From when on what it did was lost; -inf: from its first step; None: nothing is known to be lost."""
    provisional: bool = False
    """Whether a following attempt may show that a part of it is lost."""
    at_risk: int | None = None
    """Of a provisional attempt: how much would be lost if the next one continued from its newest durable step; None
    where no durable step is known."""
    slowest_rank: int | None = None
    """The rank that the others waited for: see `slurmopt.ledger.slowest`. None where that cannot be told."""
    slowest_node: str | None = None
    """The node of that rank."""
    notes: tuple[str, ...] = ()


@dataclass
class Ledger(Account):
    """The ledger of a run, or of several."""

    unit: str = "GPU"
    attempts: list[AttemptLedger] = field(default_factory=list)
    nodes: dict[str, Account] = field(default_factory=dict)
    """Node → its account over all attempts."""
    phases: dict[str, int] = field(default_factory=dict)
    queue_seconds: float = 0.0
    """The sum over the attempts, in seconds of the wall clock."""
    provisional: bool = False
    """Whether the newest attempt is provisional."""
    notes: tuple[str, ...] = ()
    """What is missing or was estimated, one line each; those of the attempts begin with `attempt K: `."""


def total(ledgers: Iterable[Account]) -> Account:
    """The sum of accounts, such as those of several runs. They must have the same unit."""
    found = Account()
    for ledger in ledgers:
        found.add(ledger.buckets)
    return found
