"""Dataclasses of what the cluster has and allows."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Equal nodes of one partition."""

    nodes: str
    """Their names, as a hostlist expression."""
    count: int
    usable: int
    """The number of nodes that are neither down nor drained."""
    cpus: int
    memory: int
    """MiB."""
    gpus: dict[str, int]
    """Number by type; GPUs without a type are under ""."""

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
    """Whether preemption cancels the partition's jobs instead of requeueing them."""
    groups: list[NodeGroup] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """The cluster as this user sees it."""

    cluster: str
    version: str
    controllers: list[str]
    max_array_size: int
    """The largest index of an array's task, plus one."""
    max_job_count: int = 10_000
    """The most jobs of all users that slurmctld keeps; beyond that sbatch blocks for minutes."""
    job_requeue: bool
    """Whether jobs are requeued by default."""
    requeue_in_doubt: bool = False
    """Whether a job that asks for requeueing may not get it: it is off, or a job submit plugin may change it."""
    accounting: bool
    """Whether sacct and sacctmgr have a database."""
    enforces_accounts: bool
    enforces_qos: bool
    enforces_limits: bool = False
    """Whether limits of users, accounts and QOS are enforced."""
    accounts: dict[str, list[str]] | None
    """This user's accounts, with the QOS of each; None if unknown."""
    partitions: list[Partition]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ClusterFacts:
        """Raises TypeError or KeyError if `value` was not made by `as_json`."""
        partitions = [
            Partition(**{**partition, "groups": [NodeGroup(**group) for group in partition["groups"]]})
            for partition in value["partitions"]
        ]
        return cls(**{**value, "partitions": partitions})
