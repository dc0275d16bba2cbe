"""Parses the output of `scontrol show config`, `scontrol show partition`, `sinfo` and `sacctmgr`. Pure."""

from __future__ import annotations

import re
from collections import defaultdict

from slurmopt.slurm.cluster.cluster_facts import ClusterFacts, NodeGroup, Partition
from slurmopt.units import seconds

NODE_FORMAT = "%R|%D|%c|%m|%T|%N|%G"
"""sinfo's fields: partition, count, CPUs, MiB, state, names, GRES. Only the last may contain a bar."""

_UNUSABLE = ("down", "drain", "drng", "fail", "inval", "unk", "future", "maint", "reserved", "perfctrs", "n/a")


def cluster_facts(config: str, partitions: str, nodes: str, accounts: str | None) -> ClusterFacts:
    """Combines the parsed outputs. `accounts` is None if sacctmgr printed nothing."""
    values = parse_config(config)
    enforced = set(values.get("AccountingStorageEnforce", "").lower().split(","))
    cluster = values.get("ClusterName", "")
    return ClusterFacts(
        cluster=cluster,
        version=values.get("SLURM_VERSION", ""),
        controllers=[value for key, value in values.items() if re.fullmatch(r"SlurmctldHost\[\d+\]", key)],
        max_array_size=int(values.get("MaxArraySize", "1001")),
        max_job_count=int(values.get("MaxJobCount", "10000")),
        job_requeue=values.get("JobRequeue", "1") == "1",
        requeue_in_doubt=values.get("JobRequeue") == "0"
        or values.get("JobSubmitPlugins", "(null)") not in ("(null)", ""),
        accounting=values.get("AccountingStorageType", "").endswith("/slurmdbd"),
        enforces_accounts=bool(enforced & {"associations", "limits", "qos", "safe", "all"}),
        enforces_limits=bool(enforced & {"limits", "safe", "all"}),
        enforces_qos=bool(enforced & {"qos", "all"}),
        accounts=None if accounts is None else parse_accounts(accounts, cluster),
        partitions=parse_partitions(partitions, parse_nodes(nodes), values.get("PreemptType", "preempt/none")),
    )


def parse_config(text: str) -> dict[str, str]:
    """`Key   = value` lines."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def parse_partitions(text: str, groups: dict[str, list[NodeGroup]], preemption: str = "") -> list[Partition]:
    """Parses one line of `Key=value` for each partition. `preemption` is the cluster's PreemptType."""
    lines = (dict(re.findall(r"(\w+)=(\S*)", line)) for line in text.splitlines())
    records = [fields for fields in lines if "PartitionName" in fields]
    highest = max((_tier(fields) for fields in records), default=0)
    return [
        _partition(fields, groups.get(fields["PartitionName"], []), _is_cancelled(fields, preemption, highest))
        for fields in records
    ]


def _is_cancelled(fields: dict[str, str], preemption: str, highest: int) -> bool:
    """Whether preemption cancels the partition's jobs. With preempt/partition_prio those of the highest tier are
    safe."""
    if "CANCEL" not in fields.get("PreemptMode", "").upper() or preemption in ("", "preempt/none"):
        return False
    return preemption != "preempt/partition_prio" or _tier(fields) < highest


def _tier(fields: dict[str, str]) -> int:
    return _number(fields.get("PriorityTier")) or 0


def _partition(fields: dict[str, str], groups: list[NodeGroup], preemption_cancels: bool) -> Partition:
    return Partition(
        name=fields["PartitionName"],
        state=fields.get("State", "UP").lower(),
        default=fields.get("Default") == "YES",
        max_time=slurm_seconds(fields.get("MaxTime")),
        default_time=slurm_seconds(fields.get("DefaultTime")),
        max_nodes=_number(fields.get("MaxNodes")),
        allow_accounts=_names(fields.get("AllowAccounts")),
        deny_accounts=_names(fields.get("DenyAccounts")) or [],
        allow_qos=_names(fields.get("AllowQos")),
        deny_qos=_names(fields.get("DenyQos")) or [],
        preemption_cancels=preemption_cancels,
        groups=groups,
    )


def slurm_seconds(text: str | None) -> int | None:
    """Seconds of a time as Slurm prints it; None for UNLIMITED, NONE and the like."""
    if not text or not text[0].isdigit():
        return None
    try:
        return seconds(text)
    except ValueError:  # 00:00:00
        return 0


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _names(text: str | None) -> list[str] | None:
    return None if not text or text in ("ALL", "(null)", "N/A", "NONE") else text.split(",")


def parse_nodes(text: str) -> dict[str, list[NodeGroup]]:
    """The nodes of each partition; nodes that differ only in state are one group."""
    alike: dict[tuple[str, int, int, str], list[tuple[str, int, bool]]] = defaultdict(list)
    for line in text.splitlines():
        fields = line.split("|", 6)
        if len(fields) == 7 and fields[5]:  # not so: "CLUSTER: name", and partitions without nodes
            partition, count, cpus, memory, state, names, gres = fields
            key = (partition, _leading(cpus), _leading(memory), gres)
            alike[key].append((names, _leading(count), is_usable(state)))
    groups: dict[str, list[NodeGroup]] = defaultdict(list)
    for (partition, cpu_count, mebibytes, gres), members in alike.items():
        groups[partition].append(_group(cpu_count, mebibytes, gres, members))
    return groups


def _group(cpus: int, memory: int, gres: str, members: list[tuple[str, int, bool]]) -> NodeGroup:
    return NodeGroup(
        nodes=",".join(names for names, _, _ in sorted(members)),
        count=sum(count for _, count, _ in members),
        usable=sum(count for _, count, usable in members if usable),
        cpus=cpus,
        memory=memory,
        gpus=parse_gpus(gres),
    )


def _leading(text: str) -> int:
    """The number in "16" and in "16+"."""
    match = re.match(r"\d+", text.strip())
    return int(match[0]) if match else 0


def is_usable(state: str) -> bool:
    """Whether a node in this state, as sinfo prints it, takes jobs now or later. `*` marks one that does not answer."""
    return not state.endswith("*") and not any(state.lower().startswith(word) for word in _UNUSABLE)


def parse_gpus(gres: str) -> dict[str, int]:
    """The number of GPUs by type in a GRES text such as "gpu:h100:8(S:0-1),gpu:t4:1,craynetwork:4"."""
    counts: dict[str, int] = {}
    for item in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *rest = [part for part in item.strip().split(":") if part != "no_consume"]
        if name != "gpu":
            continue
        count = rest.pop() if rest and re.fullmatch(r"\d+", rest[-1]) else "1"
        kind = rest[0] if rest else ""
        counts[kind] = counts.get(kind, 0) + int(count)
    return counts


def parse_accounts(text: str, cluster: str) -> dict[str, list[str]] | None:
    """Account → QOS, from lines `cluster|account|qos,qos`; None if this user has no account on this cluster."""
    qos_by_account: dict[str, set[str]] = defaultdict(set)
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) == 3 and fields[0] == cluster and fields[1]:
            qos_by_account[fields[1]].update(filter(None, fields[2].split(",")))
    return {account: sorted(qos) for account, qos in sorted(qos_by_account.items())} or None
