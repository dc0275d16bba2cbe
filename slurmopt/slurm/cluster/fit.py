"""Checks whether a partition has enough nodes that each meet all requirements at once. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

from slurmopt.config.check import did_you_mean
from slurmopt.config.resources import Resources
from slurmopt.slurm.cluster.cluster_facts import ClusterFacts, NodeGroup, Partition
from slurmopt.slurm.hostlist import expand
from slurmopt.units import human_bytes, mebibytes

_MIB = 1024**2


@dataclass(frozen=True)
class Need:
    """A requirement that each node must meet."""

    key: str
    amount: int
    has: Callable[[NodeGroup], int]
    show: Callable[[int], str]
    """Formats an amount for people: "8 h100 GPUs"."""

    def met_by(self, group: NodeGroup) -> bool:
        return self.has(group) >= self.amount


def node_findings(partition: Partition, resources: Resources, facts: ClusterFacts) -> list[str]:
    """Why the nodes of `partition` cannot run the job, one line for each reason."""
    findings = _wrong_nodes(partition, resources, facts)
    if not partition.groups:
        return [*findings, f"resources.partition: {partition.name} has no nodes; valid: {_with_nodes(facts)}"]
    needs = _needs(resources)
    if (missing := _missing_gpus(partition, resources, facts)) is not None:
        findings.append(missing)
        needs = [need for need in needs if need.key != "gpus_per_node"]
    unmet = _smallest_unmet(needs, partition.groups)
    findings += [_explain(unmet_needs, partition) for unmet_needs in unmet]
    # Where no node fits, the count is still held against all of them: everything is told at once.
    return findings + _too_many([] if unmet else needs, partition, resources)


def _needs(resources: Resources) -> list[Need]:
    gpus, kind = resources.gpus_per_node, resources.gpu_type
    cpus = resources.ranks_per_node * (resources.cpus_per_task or 1)
    needs = [Need("cpus_per_task", cpus, lambda group: group.cpus, lambda count: f"{count} CPUs")]
    if gpus:
        name = f"{kind} GPUs" if kind else "GPUs"
        needs.insert(0, Need("gpus_per_node", gpus, lambda group: _gpus(group, kind), lambda count: f"{count} {name}"))
    for key, times in (("memory", 1), ("memory_per_cpu", cpus), ("memory_per_gpu", gpus)):
        if (each := getattr(resources, key)) is not None:
            # 0 is all of the node's memory, whatever that is.
            needs.append(Need(key, mebibytes(each) * times, lambda group: group.memory, _memory))
    return needs


def _gpus(group: NodeGroup, kind: str | None) -> int:
    return group.gpu_count if kind is None else group.gpus.get(kind, 0)


def _memory(amount: int) -> str:
    return f"{human_bytes(amount * _MIB)} of memory"


def _missing_gpus(partition: Partition, resources: Resources, facts: ClusterFacts) -> str | None:
    """The finding for GPUs, or a GPU type, that the partition lacks."""
    if not resources.gpus_per_node:
        return None
    types = sorted({kind for group in partition.groups for kind in group.gpus})
    if not types:
        others = [other.name for other in facts.partitions if any(group.gpus for group in other.groups)]
        return f"resources.gpus_per_node: partition {partition.name} has no GPUs; with GPUs: {_listed(others)}"
    kind = resources.gpu_type
    if kind is None or kind in types:
        return None
    if types == [""]:
        return f"resources.gpu_type: the GPUs of partition {partition.name} have no types; leave it out"
    named = [name for name in types if name]
    others = [other.name for other in facts.partitions if any(kind in group.gpus for group in other.groups)]
    return (
        f"resources.gpu_type: {kind!r} is not in partition {partition.name}{did_you_mean(kind, named)}; "
        f"valid: {', '.join(named)}{f' (with {kind}: {_listed(others)})' if others else ''}"
    )


def _smallest_unmet(needs: list[Need], groups: list[NodeGroup]) -> list[tuple[Need, ...]]:
    """The smallest sets of needs that no node meets: single needs first, then combinations."""
    for size in range(1, len(needs) + 1):
        unmet = [
            chosen
            for chosen in combinations(needs, size)
            if not any(all(need.met_by(group) for need in chosen) for group in groups)
        ]
        if unmet:
            return unmet
    return []


def _explain(unmet: tuple[Need, ...], partition: Partition) -> str:
    if len(unmet) == 1:
        need = unmet[0]
        most = max(need.has(group) for group in partition.groups)
        mismatch = f"{need.show(need.amount)} a node is more than any node of partition {partition.name} has"
        return f"resources.{need.key}: {mismatch}; valid: up to {need.show(most)}{_sum(need)}"
    keys = ", ".join(f"resources.{need.key}" for need in unmet)
    needs = " and ".join(need.show(need.amount) for need in unmet)
    return f"{keys}: no node of partition {partition.name} has {needs} at once; {_nearest(unmet, partition)}"


def _sum(need: Need) -> str:
    if need.key == "cpus_per_task":
        return " for all tasks of a node (tasks_per_node x cpus_per_task)"
    return " for the whole node" if need.key.startswith("memory_per") else ""


def _nearest(unmet: tuple[Need, ...], partition: Partition) -> str:
    """Describes the nodes that meet the first of the needs."""
    options = [
        f"{short_names(group)} with {', '.join(need.show(need.has(group)) for need in unmet)}"
        for group in partition.groups
        if unmet[0].met_by(group)
    ]
    return f"there is {'; '.join(options[:3])}"


def most_nodes(partition: Partition, resources: Resources) -> int:
    """The most nodes of `partition` that can run the job at the same time."""
    count = _count(_fitting(_needs(resources), partition), resources)
    return count if partition.max_nodes is None else min(count, partition.max_nodes)


def _fitting(needs: list[Need], partition: Partition) -> list[NodeGroup]:
    return [group for group in partition.groups if all(need.met_by(group) for need in needs)]


def _count(groups: list[NodeGroup], resources: Resources) -> int:
    """The nodes of `groups` that are not excluded."""
    excluded = _names(resources.exclude)
    if not excluded:
        return sum(group.count for group in groups)
    return sum(name not in excluded for group in groups for name in expand(group.nodes))


def _too_many(needs: list[Need], partition: Partition, resources: Resources) -> list[str]:
    """The finding for a job that needs more nodes than fit, or than the partition allows. Of a range the minimum
    counts."""
    fitting = _fitting(needs, partition)
    count, least, limit = _count(fitting, resources), resources.least_nodes, partition.max_nodes
    requested = f"resources.nodes: {least}{', the least of ' + str(resources.nodes) + ',' if resources.elastic else ''}"
    if limit is not None and least > limit <= count:
        return [f"{requested} are more than partition {partition.name} allows; valid: up to {limit}"]
    if least <= count:
        return []
    usable = sum(group.usable for group in fitting)
    left = " and are not excluded" if _names(resources.exclude) else ""
    down = f" ({usable} in service now)" if usable < count else ""
    return [
        f"{requested} are more than the nodes of partition {partition.name} that fit{left}; valid: up to {count}{down}"
    ]


def _wrong_nodes(partition: Partition, resources: Resources, facts: ClusterFacts) -> list[str]:
    """The finding for named nodes that exist, but in another partition."""
    here = {name for group in partition.groups for name in expand(group.nodes)}
    anywhere = {name for other in facts.partitions for group in other.groups for name in expand(group.nodes)}
    wrong = [name for name in _names(resources.nodelist) if name in anywhere and name not in here]
    if not wrong:
        return []
    nodes = ", ".join(short_names(group) for group in partition.groups)
    return [f"resources.nodelist: not in partition {partition.name}: {', '.join(wrong)}; valid: {nodes}"]


def _names(text: str | None) -> list[str]:
    """The names of a nodelist; empty if it is a file's path or malformed, which is another finding."""
    if text is None or "/" in text:
        return []
    try:
        return expand(text)
    except ValueError:
        return []


def _with_nodes(facts: ClusterFacts) -> str:
    return _listed([partition.name for partition in facts.partitions if partition.groups])


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none here"


def short_names(group: NodeGroup) -> str:
    """The group's names, shortened on large clusters."""
    return group.nodes if len(group.nodes) <= 60 else f"{group.nodes[:57]}…"
