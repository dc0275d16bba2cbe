"""Leak and falling throughput: what changes slowly while the training goes on.

Leak: the memory of a node or GPU grows all the time, and is full before the training ends. Told by the Theil-Sen slope,
whose 99 % interval must be above zero, and by growth in each quarter: buffers that are filled once are no leak.

    cost      none that can be computed before it has happened

Falling throughput: the last quarter of the steps is slower than the first, beyond what the scatter explains.

    cost      the steps that the first quarter's rate would have saved, as a share of the time of computing
              (bucket "compute")
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from slurmopt.ledger.buckets import COMMUNICATION, COMPUTE, INPUT
from slurmopt.ledger.findings import finding, robust
from slurmopt.ledger.findings.evidence import AttemptEvidence, Points
from slurmopt.ledger.findings.finding import Abstention, Finding
from slurmopt.ledger.findings.wording import amount, percent
from slurmopt.units import human_bytes, human_seconds

LEAST_POINTS = 8
"""Of a curve: two for each quarter."""
LEAST_GROWTH = 0.05
"""Of the memory in use at first, while it was watched. The allocator of a healthy training wanders by less."""
LEAST_OF_LIMIT = 0.02
EVEN = 0.15
"""Of the whole growth, that from each quarter to the next; a straight line has a third."""
LEAST_OF_LEAK = 0.1
"""Of the growth of a node, that of one process which is named: eight ranks may leak alike."""
LONG = 600.0
"""Seconds. A cache that fills during the first epoch grows as evenly, for minutes."""
FORESIGHT = 10.0
"""Where the end of the training is not known, a curve is followed for this multiple of the time that it was seen."""
LEAST_FALL = 0.20
"""Of the rate. Lengths of sequences and the fullness of a shared file system change it by some percent."""
SCATTERS = 3.0
"""The fall must exceed this multiple of the robust standard deviation within a quarter."""


@dataclass(frozen=True)
class _Leak:
    node: str
    gpu: int | None
    limit: float
    first: float
    last: float
    slope: float
    full_in: float
    """Seconds after the last point."""
    span: float
    """Seconds from the first point to the last."""


def leaks(evidence: AttemptEvidence) -> Iterator[Finding | Abstention]:
    """The memory that is full first."""
    if not evidence.nodes:
        return  # `unmeasured` says so
    left = _seconds_left(evidence)
    found = [
        leak
        for leak in (
            *(_leak(node.node, None, node.memory_limit, node.memory_points, left) for node in evidence.nodes),
            *(_leak(gpu.node, gpu.index, gpu.memory, gpu.memory_points, left) for gpu in evidence.devices),
        )
        if leak is not None
    ]
    if found:
        yield _finding(evidence, min(found, key=lambda leak: leak.full_in), len(found))


def _seconds_left(evidence: AttemptEvidence) -> float | None:
    """Until the training's last step; None where that is not known."""
    rate, step, total = evidence.steps_per_second, evidence.step, evidence.total_steps
    return max(0.0, (total - step) / rate) if rate and step is not None and total else None


def _leak(node: str, gpu: int | None, limit: float | None, points: Points, left: float | None) -> _Leak | None:
    """The leak that a curve shows, if the memory is full within `left` seconds."""
    if len(points) < LEAST_POINTS or not limit:
        return None
    quarters = robust.parts(points, 4)
    growth = quarters[-1] - quarters[0]
    if growth < max(LEAST_GROWTH * quarters[0], LEAST_OF_LIMIT * limit):
        return None
    if any(later - before < EVEN * growth for before, later in pairwise(quarters)):
        return None
    slope, low, _ = robust.slope(robust.thin(points))
    if low <= 0:
        return None
    span = points[-1][0] - points[0][0]
    last = quarters[-1] + slope * span / 8  # from the middle of the last quarter to its end
    full_in = max(0.0, limit - last) / slope
    if full_in >= (FORESIGHT * span if left is None else left):
        return None
    return _Leak(node, gpu, limit, quarters[0], last, slope, full_in, span)


def _finding(evidence: AttemptEvidence, leak: _Leak, count: int) -> Finding:
    where = leak.node if leak.gpu is None else f"GPU {leak.gpu} of {leak.node}"
    rate, step = evidence.steps_per_second, evidence.step
    at_step = "" if not rate or step is None else f", at about step {step + rate * leak.full_in:,.0f}"
    lines = [
        f"grew from {human_bytes(leak.first)} to {human_bytes(leak.last)}, by {human_bytes(leak.slope * 3600)} an hour",
        f"{human_bytes(leak.limit)} are full in {human_seconds(leak.full_in)}{at_step}",
    ]
    if leak.gpu is None and (grower := _grower(evidence, leak)):
        lines.append(grower)
    if count > 1:
        lines.append(f"also {count - 1} other nodes or GPUs")
    killed = any(event.get("event") == "oom_kill" for event in evidence.events)
    lines += ["a process was killed for memory"] if killed else []
    return Finding(
        kind=finding.LEAK,
        cause="memory" if leak.gpu is None else "GPU memory",
        summary=f"The memory of {where} grows all the time",
        sure=finding.CERTAIN if killed else finding.LIKELY if leak.span >= LONG else finding.POSSIBLE,
        evidence=tuple(lines),
        cost=None,
        change="losses.append(loss.item())  # numbers, not tensors, in what is kept from step to step",
        node=leak.node,
        gpu=leak.gpu,
    )


def _grower(evidence: AttemptEvidence, leak: _Leak) -> str | None:
    """The process of the node that has grown most, if that is a part of the leak worth a look."""
    grown = [
        (robust.slope(robust.thin(points))[0], name)
        for rank in evidence.ranks
        if rank.node == leak.node
        for name, points in (
            (f"rank {rank.rank}", rank.memory_points),
            (f"the workers of rank {rank.rank}", rank.workers_points),
        )
        if len(points) >= LEAST_POINTS
    ]
    slope, name = max(grown, default=(0.0, ""))
    if slope < LEAST_OF_LEAK * leak.slope:
        return None
    return f"grows most: {name}, by {human_bytes(slope * 3600)} an hour"


def _missing_rates(evidence: AttemptEvidence) -> str:
    if any(rank.steps for rank in evidence.ranks):
        return "steps per second over time: `monitor.sampler=true` with `ranks` among `monitor.sources`"
    return "steps: `slurmopt.progress(step)`"


def falling(evidence: AttemptEvidence) -> Iterator[Finding | Abstention]:
    """Falling throughput of the whole training."""
    if len(evidence.rates) < LEAST_POINTS:
        if evidence.ranks and not evidence.rates:
            yield Abstention(finding.FALLING, (_missing_rates(evidence),))
        return
    quarters = robust.parts(evidence.rates, 4)
    first, last = quarters[0], quarters[-1]
    size = len(evidence.rates) // 4
    scatter = max(robust.spread([rate for _, rate in part]) for part in (evidence.rates[:size], evidence.rates[-size:]))
    if first <= 0 or first - last < LEAST_FALL * first or first - last < SCATTERS * scatter:
        return
    if quarters[-2] - last < 0 and quarters[-2] < first * (1 - LEAST_FALL) < last:
        return  # it has recovered
    lost = fmean(max(0.0, 1 - rate / first) for _, rate in evidence.rates)
    span = evidence.rates[-1][0] - evidence.rates[0][0]
    buckets, unit = (COMPUTE, COMMUNICATION, INPUT), f"{evidence.rates_of}/s"
    yield Finding(
        kind=finding.FALLING,
        summary=f"The training has become slower by {percent(1 - last / first)}",
        sure=finding.LIKELY,
        evidence=(
            f"{amount(first)} {unit} in the first quarter, {amount(last)} in the last, of {human_seconds(span)}",
            "by quarters: " + ", ".join(map(amount, quarters)) + f" {unit}",
        ),
        cost=evidence.hours(lost * evidence.bucket(*buckets), *buckets),
        change="total_loss += loss.item()  # instead of `+= loss`, which keeps the graph of each step",
    )
