"""Compares the requested resources with what the cluster has: one line for each mismatch. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from slurmopt.config.check import did_you_mean
from slurmopt.config.resources import MEMORY, Resources
from slurmopt.errors import one_line
from slurmopt.slurm.cluster.cluster_facts import ClusterFacts, Partition
from slurmopt.slurm.cluster.fit import most_nodes, node_findings, short_names
from slurmopt.slurm.hostlist import expand
from slurmopt.units import seconds, slurm_time

_LEAST_MEMORY = 512
"""MiB; a Python that has imported PyTorch has more."""
_SITE_DEFAULTS = {
    "partition": "SBATCH_PARTITION",
    "account": "SBATCH_ACCOUNT",
    "qos": "SBATCH_QOS",
    "time": "SBATCH_TIMELIMIT",
}


def with_site_defaults(resources: Resources, environ: Mapping[str, str]) -> Resources:
    """`resources`, with the site's SBATCH_ variables for what the config does not set."""
    added = {
        name: environ[variable]
        for name, variable in _SITE_DEFAULTS.items()
        if getattr(resources, name) is None and environ.get(variable)
    }
    return replace(resources, **added) if added else resources  # type: ignore[arg-type]


def findings(resources: Resources, facts: ClusterFacts, array_size: int = 1) -> list[str]:
    """One line for each mismatch: key, value, what is wrong, what would be valid."""
    lines = _partition_findings(resources, facts)
    lines += _unknown_nodes(resources, facts)
    lines += _account_findings(resources, facts)
    if array_size > facts.max_array_size:
        lines.append(
            f"sweep: an array of {array_size} tasks is more than this cluster allows; "
            f"valid: up to {facts.max_array_size}"
        )
    return [one_line(line) for line in dict.fromkeys(lines)]


def remarks(resources: Resources, facts: ClusterFacts) -> list[str]:
    """Remarks on resources without findings, such as nodes that the job can never get."""
    return [*_unreachable_nodes(resources, facts), *_few_cpus(resources, facts), *_little_memory(resources)]


def idle_gpus(resources: Resources) -> list[str]:
    """A remark if a node gets more GPUs than ranks, for a job with one process for each rank."""
    ranks, gpus = resources.ranks_per_node, resources.gpus_per_node
    if gpus <= ranks:
        return []
    return [
        f"resources.tasks_per_node: {ranks} for {gpus} GPUs on each node: GPUs that no rank chooses itself stay idle; "
        "leave it out for one rank per GPU"
    ]


def _few_cpus(resources: Resources, facts: ClusterFacts) -> list[str]:
    """A remark if each rank with a GPU gets one CPU, which is Slurm's default."""
    if not resources.gpus_per_node or resources.cpus_per_task is not None or resources.exclusive:
        return []
    chosen = chosen_partitions(resources, facts)
    groups = [group for partition in chosen for group in partition.groups if group.gpu_count]
    fair = min((group.cpus // group.gpu_count for group in groups), default=1)
    share = fair * resources.gpus_per_node // resources.ranks_per_node
    if share < 2:
        return []
    return [
        "resources.cpus_per_task: not set, so Slurm gives each rank 1 CPU unless the partition has DefCpuPerGPU; "
        f"{share} for each rank are the GPUs' part of a node"
    ]


def _little_memory(resources: Resources) -> list[str]:
    """A remark on a memory size without a unit that no Python process fits in."""
    given = ((key, str(getattr(resources, key))) for key in MEMORY)
    return [
        f"resources.{key}: {value} is {value} MB, as in Slurm; write {value}G if gigabytes are meant"
        for key, value in given
        if value.isdecimal() and 0 < int(value) < _LEAST_MEMORY
    ]


def _unreachable_nodes(resources: Resources, facts: ClusterFacts) -> list[str]:
    if not resources.elastic:
        return []
    fitting = [one for one in chosen_partitions(resources, facts) if not node_findings(one, resources, facts)]
    most = max((most_nodes(partition, resources) for partition in fitting), default=resources.most_nodes)
    if most >= resources.most_nodes:
        return []
    where = f"partition {_listed(partition.name for partition in fitting)}"
    return [
        f"resources.nodes: of {resources.nodes} no attempt can have more than {most} in {where}; it is submitted anyway"
    ]


def cancelled_by_preemption(resources: Resources, facts: ClusterFacts) -> list[str]:
    """The partitions of the job in which preemption would cancel it."""
    return [partition.name for partition in chosen_partitions(resources, facts) if partition.preemption_cancels]


def chosen_partitions(resources: Resources, facts: ClusterFacts) -> list[Partition]:
    """The existing partitions that the job names, or the default partition."""
    if resources.partition is None:
        return [partition for partition in facts.partitions if partition.default]
    names = _partition_names(resources.partition)
    return [partition for name in names for partition in facts.partitions if partition.name == name]


def _partition_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _partition_findings(resources: Resources, facts: ClusterFacts) -> list[str]:
    partitions = {partition.name: partition for partition in facts.partitions}
    chosen = chosen_partitions(resources, facts)
    if resources.partition is not None:
        unknown = [name for name in _partition_names(resources.partition) if name not in partitions]
        if unknown:
            return [
                f"resources.partition: {name!r} is not a partition here{did_you_mean(name, partitions)}; "
                f"valid: {_listed(partitions)}"
                for name in unknown
            ]
    elif not chosen:
        return [f"resources.partition: is not set, and this cluster has no default; valid: {_listed(partitions)}"]
    # Slurm takes the first of several partitions that can run the job, so only the best one's findings count.
    return min((_against(partition, resources, facts) for partition in chosen), key=len)


def _against(partition: Partition, resources: Resources, facts: ClusterFacts) -> list[str]:
    findings = []
    if partition.state != "up":
        up = [other.name for other in facts.partitions if other.state == "up" and other.groups]
        findings.append(f"resources.partition: {partition.name} is {partition.state} now; up: {_listed(up)}")
    findings += _time_findings(partition, resources, facts)
    findings += _permission_findings(partition, resources, facts)
    findings += node_findings(partition, resources, facts)
    return findings


def _time_findings(partition: Partition, resources: Resources, facts: ClusterFacts) -> list[str]:
    if resources.time is None or partition.max_time is None:
        return []
    requested = seconds(resources.time)
    if requested <= partition.max_time:
        return []
    up = [other for other in facts.partitions if other.state == "up" and other.groups]
    longer = [other.name for other in up if other.max_time is None or other.max_time >= requested]
    return [
        f"resources.time: {slurm_time(requested)} is longer than partition {partition.name} allows; "
        f"valid: up to {slurm_time(partition.max_time)}{f' (long enough: {_listed(longer)})' if longer else ''}"
    ]


def _permission_findings(partition: Partition, resources: Resources, facts: ClusterFacts) -> list[str]:
    findings = []
    if facts.enforces_accounts:  # without it Slurm does not look at a partition's lists
        findings += _permission(
            "account", resources.account, partition.name, partition.allow_accounts, partition.deny_accounts
        )
    if facts.enforces_qos:
        findings += _permission("qos", resources.qos, partition.name, partition.allow_qos, partition.deny_qos)
    return findings


def _permission(key: str, value: str | None, partition: str, allowed: list[str] | None, denied: list[str]) -> list[str]:
    if value is None:
        return []
    if allowed is not None and value not in allowed:
        return [f"resources.{key}: {value!r} may not use partition {partition}; valid: {_listed(allowed)}"]
    if allowed is None and value in denied:
        return [f"resources.{key}: {value!r} may not use partition {partition}; valid: any but {_listed(denied)}"]
    return []


def _account_findings(resources: Resources, facts: ClusterFacts) -> list[str]:
    accounts = facts.accounts
    # Where Slurm does not insist on accounts it would take a misspelt one too, and charge nobody; but then a user
    # without any has nothing to be held against.
    if accounts is None or not (accounts or facts.enforces_accounts):
        return []
    account, qos = resources.account, resources.qos
    if account is not None and account not in accounts:
        return [
            f"resources.account: {account!r} is not one of yours{did_you_mean(account, accounts)}; "
            f"valid: {_listed(accounts)}"
        ]
    yours = (
        accounts[account] if account is not None else sorted({name for names in accounts.values() for name in names})
    )
    if qos is None or not yours or qos in yours:
        return []
    return [
        f"resources.qos: {qos!r} is not open to {f'account {account}' if account else 'your accounts'}"
        f"{did_you_mean(qos, yours)}; valid: {_listed(yours)}"
    ]


def _unknown_nodes(resources: Resources, facts: ClusterFacts) -> list[str]:
    findings = []
    for key in ("nodelist", "exclude"):
        text = getattr(resources, key)
        if text is None or "/" in text:  # with a slash sbatch reads the names from a file
            continue
        try:
            unknown = [name for name in expand(text) if name not in _all_nodes(facts)]
        except ValueError as error:
            findings.append(f"resources.{key}: {error}; valid: names such as node1,node[2-4]")
            continue
        if unknown:
            hint = did_you_mean(unknown[0], _all_nodes(facts))
            findings.append(f"resources.{key}: no such nodes here: {_listed(unknown)}{hint}; valid: {_groups(facts)}")
    return findings


def _all_nodes(facts: ClusterFacts) -> dict[str, None]:
    return {name: None for partition in facts.partitions for group in partition.groups for name in expand(group.nodes)}


def _groups(facts: ClusterFacts) -> str:
    return _listed(dict.fromkeys(short_names(group) for partition in facts.partitions for group in partition.groups))


def _listed(names: Iterable[str]) -> str:
    """The names, separated by commas; of many the first twenty."""
    listed = list(names)
    shown = ", ".join(listed[:20]) or "none"
    return f"{shown} and {len(listed) - 20} more" if len(listed) > 20 else shown
