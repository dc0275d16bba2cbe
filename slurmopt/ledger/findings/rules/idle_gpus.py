"""Idle GPUs: allocated, and used by no rank.

Told by the GPUs' utilisation, which stays 0 from the first step to the last; where it is not measured, by the GPUs that
the ranks name. A GPU that a process of a rank uses is not idle, whatever the rank names.

    cost      the idle GPUs · the whole attempt (bucket "held by no rank", where the ranks do not name them)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from slurmopt.ledger.buckets import UNUSED
from slurmopt.ledger.findings import finding
from slurmopt.ledger.findings.evidence import AttemptEvidence, GpuEvidence
from slurmopt.ledger.findings.finding import Abstention, Finding
from slurmopt.ledger.findings.wording import named

IDLE_MEAN, IDLE_PEAK = 0.5, 5.0
"""Percent. A GPU that nobody uses shows 0; a query of its state may show as 1 for a moment."""


def judge(evidence: AttemptEvidence) -> Iterator[Finding | Abstention]:
    """The allocated GPUs that are idle, of all nodes."""
    if not evidence.has_gpus or evidence.window <= 0:
        return
    by_node = [evidence.allocated_devices(node) for node in evidence.gpus]
    devices = [device for here in by_node for device in here or ()]
    if None not in by_node and all("util" in device.means and not device.mig for device in devices):
        if idle := [device for device in devices if _idle(device)]:
            yield _measured(evidence, idle)
        return
    if not evidence.ranks or not any(rank.gpus for rank in evidence.ranks):
        yield Abstention(finding.IDLE_GPUS, ("GPU utilisation", "the GPUs that each rank uses"))
        return
    unused = {node: count - sum(rank.gpus for rank in evidence.ranks_of(node)) for node, count in evidence.gpus.items()}
    if any(count > 0.01 for count in unused.values()):
        yield _by_ranks(evidence, {node: count for node, count in unused.items() if count > 0.01})


def _idle(device: GpuEvidence) -> bool:
    return (
        device.means["util"] <= IDLE_MEAN
        and device.peaks.get("util", 0.0) <= IDLE_PEAK
        and device.share("sm", "tensor") < 0.01
    )


def _measured(evidence: AttemptEvidence, idle: list[GpuEvidence]) -> Finding:
    count = len(idle)
    names = [f"{device.node} GPU {device.index}" for device in idle]
    nobody = all(device.ranks == () for device in idle)
    return Finding(
        kind=finding.IDLE_GPUS,
        cause="no rank" if nobody else None,
        summary=f"{count} of {sum(evidence.gpus.values()):.0f} GPUs do nothing",
        sure=finding.CERTAIN,
        evidence=(f"utilisation 0 % from the first step to the last: {named(names)}",),
        cost=evidence.hours(count * evidence.seconds, *_bucket(evidence, nobody)),
        change=_change(evidence, {node: sum(d.node == node for d in idle) for node in evidence.gpus}),
        node=idle[0].node if len({device.node for device in idle}) == 1 else None,
        gpu=idle[0].index if count == 1 else None,
    )


def _by_ranks(evidence: AttemptEvidence, unused: dict[str, float]) -> Finding:
    count = sum(unused.values())
    return Finding(
        kind=finding.IDLE_GPUS,
        cause="no rank",
        summary=f"{count:g} of {sum(evidence.gpus.values()):g} allocated GPUs are used by no rank",
        sure=finding.LIKELY,
        evidence=tuple(
            f"{node}: {evidence.gpus[node]:g} GPUs allocated, {evidence.gpus[node] - free:g} used by ranks"
            for node, free in list(unused.items())[:4]
        ),
        cost=evidence.hours(count * evidence.seconds, *_bucket(evidence, True)),
        change=_change(evidence, unused),
        node=next(iter(unused)) if len(unused) == 1 else None,
    )


def _bucket(evidence: AttemptEvidence, nobody: bool) -> tuple[str, ...]:
    return (UNUSED,) if nobody and evidence.bucket(UNUSED) > 0 else ()


def _change(evidence: AttemptEvidence, unused: dict[str, float]) -> str:
    """Fewer nodes where whole nodes are idle; else as many GPUs as the busiest node needs."""
    needed = {node: math.ceil(count - unused.get(node, 0.0) - 0.01) for node, count in evidence.gpus.items()}
    used_nodes = sum(count > 0 for count in needed.values())
    if 0 < used_nodes < len(needed):
        return f"resources.nodes={used_nodes}"
    return f"resources.gpus_per_node={max(needed.values(), default=0)}"
