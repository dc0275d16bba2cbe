"""Turns heartbeats into records of ranks; every field of a wrong type counts as missing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slurmopt.ledger.record import RankRecord, Sample
from slurmopt.report.records.allocation import Allocation
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.json_values import as_int, number, text
from slurmopt.run_folder.time_spent import TimeSpent, amounts

_LATEST = 1e11
"""Seconds since the epoch, and seconds in an activity; a larger number is none."""
_MOST_RANKS = 100_000


@dataclass(frozen=True)
class Ranks:
    """The records of an attempt's ranks."""

    records: list[RankRecord]
    world_size: int | None
    missing: int
    """Ranks that left no heartbeat."""


def rank_records(
    beats: Mapping[int, Heartbeat],
    allocation: Allocation,
    restored: float | None = None,
    samples: Mapping[int, tuple[Sample, ...]] | None = None,
) -> Ranks:
    """The ranks of an attempt.

    `beats`: their heartbeats. `restored`: when the journal notes the end of the restore, for heartbeats of earlier
    versions. A single rank in a job of several nodes is a command that starts its own ranks (`task.per=job`): it uses
    all of them.
    """
    if not beats:
        return Ranks([], None, 0)
    nodes = {rank: allocation.node_of(text(beat.node) or "?") for rank, beat in beats.items()}
    shares = _gpus_used(beats, nodes, allocation)
    records = [
        _record(rank, beat, nodes[rank], shares[rank], restored, (samples or {}).get(rank, ()))
        for rank, beat in sorted(beats.items())
    ]
    world_size = max((as_int(beat.world_size) or 0 for beat in beats.values()), default=0)
    if world_size == len(records) == 1 < len(allocation.units):
        return Ranks(_on_all_nodes(records[0], allocation), 1, 0)
    return Ranks(records, world_size or None, 0)


def with_missing(ranks: Ranks, allocation: Allocation, began: float) -> Ranks:
    """Adds records of the ranks that left no heartbeat, so that their GPUs count as `unknown` and not as unused."""
    size = ranks.world_size or 0
    present = {record.rank for record in ranks.records}
    nodes = list(allocation.units)
    if not len(present) < size <= _MOST_RANKS:
        return ranks
    per_node = -(-size // len(nodes))
    on_node = Counter(record.node for record in ranks.records)
    free = [node for node in nodes for _ in range(max(0, per_node - on_node[node]))]
    added = [
        RankRecord(rank, node, allocation.units[node] / per_node, began, began, False, {})
        for rank, node in zip((rank for rank in range(size) if rank not in present), free, strict=False)
    ]
    return Ranks([*ranks.records, *added], size, len(added))


def of_summary(told: TimeSpent, allocation: Allocation, began: float, step: int | None) -> Ranks:
    """The ranks of which only the means are known, as records that each stand for the ranks of a node."""
    size = max(told.world_size or 0, told.ranks)
    units = sum(allocation.units.values())
    used = told.ranks / size
    if allocation.unit == "GPU" and told.gpus is not None and units and size >= len(allocation.units):
        used = min(1.0, told.gpus / units)
    ended = min(told.ended, told.ranks) / told.ranks
    silent = min(1.0 - used, (size - told.ranks) / size)
    mean = _mean_rank(told, began, step)
    shares = [
        (replace(mean, ended=True), used * ended),
        (replace(mean, ended=False), used * (1.0 - ended)),
        (RankRecord(0, "", 0.0, began, began, False, {}), silent),
    ]
    records = [
        replace(record, rank=number, node=node, gpus=units_of_node * share)
        for number, (node, units_of_node) in enumerate(allocation.units.items())
        for record, share in shares
        if share > 0
    ]
    return Ranks(records, size, size - told.ranks)


def _mean_rank(told: TimeSpent, began: float, step: int | None) -> RankRecord:
    started = _time(told.started) or began
    return RankRecord(
        rank=0,
        node="",
        gpus=0.0,
        started=started,
        seen=_time(told.seen) or started,
        ended=True,
        spent=told.spent,
        first_step=told.first_step,
        step=step,
        counted={"steps": 1.0, "ddp_sampled": 1.0, "ddp_exposed": told.exposed} if told.exposed else {},
        first_step_time=_time(told.first_step_time),
        step_time=_time(told.step_time),
        stands_for=told.ranks,
    )


def _record(
    rank: int, beat: Heartbeat, node: str, gpus: float, restored: float | None, samples: tuple[Sample, ...]
) -> RankRecord:
    seen = _time(beat.time) or 0.0
    started = _time(beat.started) or seen
    spent = amounts(beat.spent) or _spent_of_phases(beat, started, seen, restored)
    return RankRecord(
        rank=rank,
        node=node,
        gpus=gpus,
        started=started,
        seen=seen,
        ended=isinstance(beat.outcome, dict) and bool(beat.outcome),
        spent=spent,
        first_step=as_int(beat.first_step),
        step=as_int(beat.step),
        samples=samples,
        counted=amounts(beat.counted),
        activity=text(beat.phase),
        first_step_time=_time(beat.first_step_time),
        step_time=_time(beat.step_time),
    )


def _time(value: Any) -> float | None:
    found = number(value)
    return found if found is not None and 0 < found < _LATEST else None


def _spent_of_phases(beat: Heartbeat, started: float, seen: float, restored: float | None) -> dict[str, float]:
    """What a rank of an earlier version spent, which noted only when it first entered each phase: an estimate."""
    phases = beat.phases if isinstance(beat.phases, dict) else {}
    marks = [(at, text(name) or "?") for name, since in phases.items() if (at := _time(since)) is not None]
    if (first := _time(beat.first_step_time)) is not None:
        marks = [(at, "first step" if name == "running" and at < first else name) for at, name in marks]
        marks.append((first, "running"))
    if restored is not None and any(name == "restoring" for _, name in marks):
        marks.append((restored, "first step" if first is not None and restored < first else "running"))
    marks = sorted((min(max(at, started), seen), name) for at, name in [(started, "starting"), *marks])
    spent: dict[str, float] = defaultdict(float)
    for (at, name), (until, _) in zip(marks, [*marks[1:], (seen, "")], strict=True):
        spent[name] += max(0.0, until - at)
    return {name: seconds for name, seconds in spent.items() if seconds > 0}


def _gpus_used(beats: Mapping[int, Heartbeat], nodes: Mapping[int, str], allocation: Allocation) -> dict[int, float]:
    """How many of its node's GPUs (CPUs) each rank uses. A GPU that several ranks of a node name is shared by them."""
    on_node: dict[str, list[int]] = defaultdict(list)
    for rank, node in nodes.items():
        on_node[node].append(rank)
    used: dict[int, float] = {}
    for node, ranks in on_node.items():
        units = allocation.units.get(node, 0.0)
        named = {rank: _named(beats[rank]) for rank in ranks}
        if allocation.unit != "GPU" or not all(named.values()):
            used |= dict.fromkeys(ranks, units / _ranks_of_node(beats, ranks, allocation))
            continue
        users = Counter(gpu for gpus in named.values() for gpu in gpus)
        used |= {rank: sum(1 / users[gpu] for gpu in gpus) for rank, gpus in named.items()}
    return used


def _named(beat: Heartbeat) -> set[str]:
    return {name for gpu in beat.gpus if (name := text(gpu))} if isinstance(beat.gpus, list) else set()


def _ranks_of_node(beats: Mapping[int, Heartbeat], ranks: Sequence[int], allocation: Allocation) -> int:
    """How many ranks share what a node has: those that reported, or as many as each node must have."""
    size = max((as_int(beats[rank].world_size) or 0 for rank in ranks), default=0)
    return max(len(ranks), -(-min(size, _MOST_RANKS) // len(allocation.units)), 1)


def _on_all_nodes(record: RankRecord, allocation: Allocation) -> list[RankRecord]:
    return [replace(record, node=node, gpus=units) for node, units in allocation.units.items()]
