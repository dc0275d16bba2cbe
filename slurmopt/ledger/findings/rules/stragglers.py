"""Straggler: one rank (or one node) for which all others wait in each step. It is the one that waits least.

Told by DDP's own timings: a backward ends before the wait for the other ranks, so its time differs between ranks, while
the time of the whole step is the same on all. Where forward and backward are alike and one rank does not wait, its time
goes elsewhere in the step. Without these timings only waiting for input, which each rank measures itself, tells ranks
apart.

A rank stands out if its excess over the median of the others is more than MAD_FACTOR robust standard deviations, and
at least LEAST_SHARE of the step.

    cost      what the others wait for it: their exposed communication beyond that of the straggler · steps · GPUs
              (bucket "exposed communication"); by input: its excess · steps · the GPUs of the others
    causes    backward   its forward and backward take longer
              input      it waits for its loader
              outside    it is slow outside forward and backward
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from slurmopt.ledger.buckets import COMMUNICATION, COMPUTE
from slurmopt.ledger.findings import finding
from slurmopt.ledger.findings.evidence import AttemptEvidence, RankEvidence
from slurmopt.ledger.findings.finding import Abstention, Finding
from slurmopt.ledger.findings.robust import Others
from slurmopt.ledger.findings.rules.throttling import exclude
from slurmopt.ledger.findings.wording import milliseconds, named, percent

LEAST_SHARE, CRITICAL_SHARE = 0.10, 0.20
"""Of the step: TraceML 0.3.6 warns at 10 %, and calls 20 % critical."""
MAD_FACTOR = 3.0
"""Robust standard deviations. Our own choice; Google's ml-goodput-measurement calls a step odd beyond three median
absolute deviations, which is less."""
_SLOW = {
    "backward": "its forward and backward take longer",
    "input": "it waits for its loader",
    "outside": "its step takes longer outside forward and backward",
}


@dataclass(frozen=True)
class _Straggler:
    rank: RankEvidence
    cause: str
    excess: float
    """Seconds of each step."""
    step: float


def judge(evidence: AttemptEvidence) -> Iterator[Finding | Abstention]:
    """The straggler that costs most."""
    ranks = [rank for rank in evidence.ranks if rank.step_seconds is not None]
    if len(evidence.ranks) < 2 or len(ranks) < len(evidence.ranks):
        return
    timed = all(rank.compute is not None and rank.exposed is not None for rank in ranks)
    by_cause = {
        "input": _outlier(ranks, [_input_seconds(rank) for rank in ranks]),
        "backward": _outlier(ranks, [rank.compute or 0.0 for rank in ranks]) if timed else [],
        "outside": _outlier(ranks, [-(rank.exposed or 0.0) for rank in ranks]) if timed else [],
    }
    waits = Others(rank.exposed or 0.0 for rank in ranks)
    found = [
        _Straggler(rank, cause, excess, rank.step_seconds or 0.0)
        for cause, outliers in by_cause.items()
        for rank, excess in outliers
        if not timed or cause == "input" or _others_wait(rank, waits)
    ]
    if found:
        worst = max(found, key=lambda item: (item.cause != "outside", item.excess))
        same = [item.rank for item in found if item.cause == worst.cause]
        yield _found(evidence, worst, same, _lines(worst, ranks, timed))
    elif not timed:
        yield Abstention(finding.STRAGGLER, ("DDP's timings of each rank (DistributedDataParallel only)",))


def _input_seconds(rank: RankEvidence) -> float:
    return rank.waiting * (rank.step_seconds or 0.0)


def _outlier(ranks: Sequence[RankEvidence], values: Sequence[float]) -> list[tuple[RankEvidence, float]]:
    """The ranks whose value exceeds that of the others, and by how many seconds of a step. Less than half of them: the
    median of the others must be that of healthy ranks."""
    found, least, all_of_them = [], min(values), Others(values)
    for rank, value in zip(ranks, values, strict=True):
        if value - least < LEAST_SHARE * (rank.step_seconds or 0.0):
            continue
        excess = value - all_of_them.median(value)
        if excess > MAD_FACTOR * all_of_them.spread(value) and excess >= LEAST_SHARE * (rank.step_seconds or 0.0):
            found.append((rank, excess))
    return found if 2 * len(found) <= len(ranks) else []


def _others_wait(rank: RankEvidence, waits: Others) -> bool:
    """Whether the others wait for a rank that is slower."""
    return (rank.exposed or 0.0) <= waits.median(rank.exposed or 0.0)


def _lines(worst: _Straggler, ranks: Sequence[RankEvidence], timed: bool) -> list[str]:
    rank, others = worst.rank, [other for other in ranks if other is not worst.rank]
    lines = []
    if worst.cause == "backward":
        lines.append(
            f"forward and backward: {milliseconds(rank.compute or 0.0)} on rank {rank.rank}, "
            f"{milliseconds(median(other.compute or 0.0 for other in others))} on the others"
        )
    if worst.cause == "input":
        lines.append(
            f"waiting for input: {milliseconds(_input_seconds(rank))} of each step on rank {rank.rank}, "
            f"{milliseconds(median(map(_input_seconds, others)))} on the others"
        )
    if timed:
        lines.append(
            f"waiting for the other ranks: {milliseconds(rank.exposed or 0.0)} of each step on rank {rank.rank}, "
            f"{milliseconds(median(other.exposed or 0.0 for other in others))} on the others"
        )
    return [*lines, f"a step takes {milliseconds(worst.step)}"]


def _found(evidence: AttemptEvidence, worst: _Straggler, same: Sequence[RankEvidence], lines: list[str]) -> Finding:
    rank, share = worst.rank, worst.excess / worst.step
    nodes = {other.node for other in same}
    whole_node = len(same) > 1 and len(nodes) == 1 and len(same) == len(evidence.ranks_of(rank.node))
    who = f"Node {rank.node}" if whole_node else f"Rank {rank.rank} on {rank.node}"
    if len(same) > 1 and not whole_node:
        lines.append("also slow: " + named([f"rank {other.rank}" for other in same if other is not rank]))
    critical = share >= CRITICAL_SHARE and worst.cause != "outside"
    return Finding(
        kind=finding.STRAGGLER,
        cause=worst.cause,
        summary=f"{who} delays all others by {percent(share)} of each step: {_SLOW[worst.cause]}",
        sure=finding.CERTAIN if critical else finding.LIKELY,
        evidence=tuple(lines),
        cost=_cost(evidence, worst),
        change=_change(evidence, worst),
        node=rank.node,
        rank=None if whole_node else rank.rank,
        gpu=rank.devices[0] if len(rank.devices) == 1 and not whole_node else None,
    )


def _cost(evidence: AttemptEvidence, worst: _Straggler) -> float:
    steps = max(rank.steps for rank in evidence.ranks)
    others = [rank for rank in evidence.ranks if rank is not worst.rank]
    if any(rank.exposed is not None for rank in others):
        least = worst.rank.exposed or 0.0
        waited = sum(max(0.0, (rank.exposed or 0.0) - least) * rank.gpus for rank in others) * steps
        return evidence.hours(waited, *evidence.communication)
    return evidence.hours(worst.excess * steps * sum(rank.gpus for rank in others), COMPUTE, COMMUNICATION)


def _change(evidence: AttemptEvidence, worst: _Straggler) -> str:
    if worst.cause == "input":
        workers = evidence.config.cpus_per_task or 4
        return f"DataLoader(dataset, num_workers={max(2, workers)})"
    if worst.cause == "backward" and not evidence.has_gpus:
        return profile(worst.rank.rank)
    if worst.cause == "backward":
        return exclude(evidence, worst.rank.node)
    return f"if step % 100 == 0:  # around what rank {worst.rank.rank} alone does in each step"


def profile(rank: int | None) -> str:
    """The line that tells what a rank does more than others."""
    return f"torch.profiler.profile()  # around some steps of rank {rank} and of another one"
