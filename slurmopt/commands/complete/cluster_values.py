"""What the cluster has, as the last command that asked Slurm noted it, however long ago. Slurm is not asked here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from slurmopt.commands.complete.answer import Answer, Candidate
from slurmopt.slurm.cluster import cache
from slurmopt.units import slurm_time


def of(name: str) -> Answer:
    """The values of an option: `partition`, `account`, `qos` or `gpu_type`. None, if Slurm was never asked."""
    return Answer(list(_VALUES[name](_facts())))


def _facts() -> dict[str, Any]:
    stored = cache.read("facts", float("inf"))
    return stored[0] if stored is not None and isinstance(stored[0], dict) else {}


def _partitions(facts: dict[str, Any]) -> Iterator[Candidate]:
    for partition in facts.get("partitions") or ():
        yield Candidate(str(partition["name"]), ", ".join(_partition(partition)))


def _partition(partition: dict[str, Any]) -> Iterator[str]:
    if partition.get("default"):
        yield "the default"
    if partition.get("state") != "up":
        yield str(partition.get("state"))
    groups = partition.get("groups") or ()
    yield f"{sum(group['count'] for group in groups)} nodes"
    gpus = sorted({f"{count} {kind} GPUs".replace("  ", " ") for one in groups for kind, count in one["gpus"].items()})
    yield from gpus
    if partition.get("max_time"):
        yield f"up to {slurm_time(partition['max_time'])}"


def _accounts(facts: dict[str, Any]) -> Iterator[Candidate]:
    for account, qos in (facts.get("accounts") or {}).items():
        yield Candidate(str(account), f"QOS {', '.join(qos)}" if qos else "")


def _qos(facts: dict[str, Any]) -> Iterator[Candidate]:
    accounts = facts.get("accounts") or {}
    for name in dict.fromkeys(name for qos in accounts.values() for name in qos):
        yield Candidate(str(name), f"of {', '.join(account for account, qos in accounts.items() if name in qos)}")


def _gpu_types(facts: dict[str, Any]) -> Iterator[Candidate]:
    groups = [(one, partition) for partition in facts.get("partitions") or () for one in partition.get("groups") or ()]
    for kind in dict.fromkeys(kind for group, _ in groups for kind in group["gpus"] if kind):
        where = dict.fromkeys(str(partition["name"]) for group, partition in groups if kind in group["gpus"])
        yield Candidate(str(kind), f"in {', '.join(where)}")


_VALUES: dict[str, Callable[[dict[str, Any]], Iterator[Candidate]]] = {
    "partition": _partitions,
    "account": _accounts,
    "qos": _qos,
    "gpu_type": _gpu_types,
}
