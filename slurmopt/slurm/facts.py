"""What the cluster has and allows, asked from Slurm once a minute and user."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from slurmopt.errors import SlurmError
from slurmopt.slurm import cache, client
from slurmopt.slurm.environment import clean_environment

MAX_AGE = 60.0
"""Seconds for which an answer serves."""

_ASK_TIMEOUT = 20.0
_ACCOUNTS_TIMEOUT = 5.0
"""Who may use which account is worth less than a quick launch: without an answer it is unknown."""


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
            Partition(**{**one, "groups": [NodeGroup(**group) for group in one["groups"]]})
            for one in value["partitions"]
        ]
        return cls(**{**value, "partitions": partitions})


def facts(fresh: bool = False) -> ClusterFacts:
    """The cluster's facts, at most a minute old. Raises SlurmMissing or SlurmUnreachable."""
    stored = None if fresh else cache.read("facts", MAX_AGE)
    if stored is not None:
        try:
            return ClusterFacts.from_json(stored[0])
        except (TypeError, KeyError, AttributeError):
            pass  # left by another version, or damaged: ask again
    asked = time.time()
    found = _ask()
    cache.write("facts", found.as_json(), asked)
    return found


def cluster_name() -> str | None:
    """The cluster's name as a job knows it, or as it was last asked for; Slurm is not asked."""
    return os.environ.get("SLURM_CLUSTER_NAME") or _last_known().get("cluster") or None


def in_cluster() -> dict[str, str]:
    """What a journal keeps beside a job's number, which means nothing on another cluster; {} where no name is known."""
    name = cluster_name()
    return {"cluster": name} if name else {}


def requeue_in_doubt() -> bool:
    """`ClusterFacts.requeue_in_doubt`, as it was last asked for; Slurm is not asked."""
    return bool(_last_known().get("requeue_in_doubt"))


def _last_known() -> dict[str, Any]:
    stored = cache.read("facts", float("inf"))
    return stored[0] if stored is not None and isinstance(stored[0], dict) else {}


def _ask() -> ClusterFacts:
    from concurrent.futures import ThreadPoolExecutor

    from slurmopt.slurm.facts_parse import NODE_FORMAT, cluster_facts

    environment = clean_environment(os.environ)

    def answer(argv: list[str], timeout: float = _ASK_TIMEOUT) -> Callable[[], str]:
        return pool.submit(client.run, argv, timeout, environment).result

    with ThreadPoolExecutor(4) as pool:
        config = answer(["scontrol", "show", "config"])
        partitions = answer(["scontrol", "--all", "--oneliner", "show", "partition"])
        nodes = answer(["sinfo", "--noheader", "--all", "--exact", "--format", NODE_FORMAT])
        accounts = pool.submit(_accounts, environment).result
        return cluster_facts(config(), partitions(), nodes(), accounts())


def _accounts(environment: dict[str, str]) -> str | None:
    """This user's associations; None where there is no accounting, no permission, or no answer in time."""
    import pwd

    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
        argv = ["sacctmgr", "--noheader", "--parsable2", "show", "assoc", f"user={user}", "format=cluster,account,qos"]
        return client.run(argv, _ACCOUNTS_TIMEOUT, environment)
    except (SlurmError, KeyError):
        return None
