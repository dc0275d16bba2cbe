"""Dataclasses of what the cluster has and allows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Nodes of one partition that are alike."""

    nodes: str
    """Their names, in Slurm's short form."""
    count: int
    usable: int
    """How many of them are neither down nor drained."""
    cpus: int
    memory: int
    """MiB."""
    gpus: dict[str, int]
    """How many of each type; GPUs without a type are under ""."""

    @property
    def gpu_count(self) -> int:
        return sum(self.gpus.values())


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A partition and its limits."""

    name: str
    state: str
    """`up`, `down`, `drain` or `inactive`."""
    default: bool = False
    max_time: int | None = None
    """Seconds; None is without limit."""
    default_time: int | None = None
    max_nodes: int | None = None
    allow_accounts: list[str] | None = None
    """None allows all."""
    deny_accounts: list[str] = field(default_factory=list)
    allow_qos: list[str] | None = None
    deny_qos: list[str] = field(default_factory=list)
    preemption_cancels: bool = False
    """Whether a job of higher priority ends its jobs for good, instead of sending them back into the queue."""
    groups: list[NodeGroup] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """One cluster, as this user sees it."""

    cluster: str
    version: str
    controllers: list[str]
    max_array_size: int
    """The largest index of an array's task, plus one."""
    max_job_count: int = 10_000
    """How many jobs slurmctld keeps at once, of all users; sbatch blocks for minutes where there would be more."""
    job_requeue: bool
    """Whether jobs are requeued where they say nothing about it."""
    requeue_in_doubt: bool = False
    """Whether one that asks for it may not get it: it is off here, or a plugin of the site's rewrites what is asked."""
    accounting: bool
    """Whether sacct and sacctmgr have a database behind them."""
    enforces_accounts: bool
    enforces_qos: bool
    enforces_limits: bool = False
    """Whether limits of users, accounts and QOS hold."""
    accounts: dict[str, list[str]] | None
    """This user's accounts, and the QOS of each; None is unknown."""
    partitions: list[Partition]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ClusterFacts:
        """Raises TypeError or KeyError where `value` is not what `as_json` gave."""
        partitions = [
            Partition(**{**partition, "groups": [NodeGroup(**group) for group in partition["groups"]]})
            for partition in value["partitions"]
        ]
        return cls(**{**value, "partitions": partitions})
