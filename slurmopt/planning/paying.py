"""What a training costs by each way of paying for GPU-hours: a rate is not a bill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurmopt.ledger.prices import CAPACITY_BLOCK, KINDS, ON_DEMAND, ON_PREMISE, RESERVED, SAVINGS_PLAN, SPOT, Price
from slurmopt.planning.cost import Total
from slurmopt.planning.ranges import Range, exactly

_COMMITMENTS = (RESERVED, SAVINGS_PLAN)
_BY_USE = (ON_DEMAND, SPOT)
"""Billed from boot to power-down."""
_LOST_HOURS = 0.5
"""Hours before the end of a Capacity Block at which its instances are taken (11:00 of 11:30 UTC)."""
_DAYS = (*range(1, 15), *range(21, 183, 7))
"""Lengths of a Capacity Block."""
_MOST_NODES = 256
"""Instances in Capacity Blocks at a time."""
_LIKELY = 0.9


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way of paying, and what the training costs by it."""

    price: Price
    amount: Range | None
    """None where it cannot be paid so."""
    remark: str


def ways(prices: Sequence[Price], whole: Total, nodes: int, gpus: int) -> list[Way]:
    """The bill of a training on so many nodes and GPUs, for each price, on demand first. `prices` are those that are
    valid for its GPU."""
    on_demand = next((price.per_hour for price in prices if price.kind == ON_DEMAND), None)
    ordered = sorted(prices, key=lambda price: KINDS.index(price.kind))
    return [_way(price, whole, nodes, gpus, on_demand) for price in ordered]


def billed(kind: str, whole: Total) -> Range:
    """GPU-hours that are paid for. Of nodes that stand anyway, boot and power-down cost nothing more."""
    return whole.gpu_hours + whole.idle_hours if kind in _BY_USE else whole.gpu_hours


def block_days(hours: float) -> int | None:
    """The shortest Capacity Block in which so many hours can be used: 1 to 14 days, or weeks up to 26; its last half
    hour cannot. None where none is long enough."""
    return next((days for days in _DAYS if days * 24 - _LOST_HOURS >= hours), None)


def _way(price: Price, whole: Total, nodes: int, gpus: int, on_demand: float | None) -> Way:
    if price.kind == CAPACITY_BLOCK:
        return _block(price, whole, nodes, gpus)
    amount = billed(price.kind, whole) * price.per_hour
    return Way(price=price, amount=amount, remark=_remark(price, on_demand))


def _block(price: Price, whole: Total, nodes: int, gpus: int) -> Way:
    days = block_days(whole.seconds.quantile(_LIKELY) / 3600)
    if nodes > _MOST_NODES or days is None:
        return Way(price=price, amount=None, remark=f"Capacity Blocks have up to {_MOST_NODES} nodes for 182 days")
    remark = f"{days} day{'s' if days > 1 else ''}, paid ahead; instances go 30 min before the end"
    return Way(price=price, amount=exactly(gpus * days * 24 * price.per_hour), remark=remark)


def _remark(price: Price, on_demand: float | None) -> str:
    if price.kind == ON_PREMISE:
        return "the mean cost of a used hour; nothing more is paid for one that would be idle"
    if not on_demand or price.kind == ON_DEMAND:
        return ""
    ratio = price.per_hour / on_demand
    if price.kind in _COMMITMENTS:
        return f"nothing more inside a commitment that stands; a new one pays from {ratio:.0%} of its hours on"
    if ratio >= 1:
        return "no cheaper than on demand"
    return f"without interruptions; they may take up to {1 / ratio - 1:.0%} more hours before on demand is cheaper"
