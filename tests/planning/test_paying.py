"""Bills: Capacity Blocks, commitments, spot."""

from __future__ import annotations

import pytest

from slurmopt.ledger.prices import CAPACITY_BLOCK, ON_DEMAND, ON_PREMISE, SAVINGS_PLAN, SPOT, Price
from slurmopt.planning.cost import Total
from slurmopt.planning.paying import block_days, ways
from slurmopt.planning.ranges import Range


def price(kind: str, per_hour: float) -> Price:
    return Price("H100", per_hour, "2026-01-01", "a source", "USD", kind=kind)


def whole(hours: float, gpus: int) -> Total:
    ends = Range(hours * 3600, hours * 3600)
    return Total(
        seconds=ends, gpu_hours=ends * (gpus / 3600), kwh=ends, idle_hours=gpus * 0.25, interval=None, mtbf=None
    )


@pytest.mark.parametrize(
    ("hours", "days"),
    [(0.1, 1), (23.5, 1), (23.6, 2), (14 * 24 - 0.5, 14), (14 * 24, 21), (182 * 24 - 0.5, 182), (182 * 24, None)],
)
def test_a_capacity_block_is_used_until_half_an_hour_before_its_end(hours: float, days: int | None) -> None:
    """Lengths by AWS: 1 to 14 days by day, to 182 by week; ends at 11:30 UTC, instances go at 11:00."""
    assert block_days(hours) == days


def test_a_capacity_block_is_paid_whole() -> None:
    (way,) = ways([price(CAPACITY_BLOCK, 3)], whole(30, 16), 2, 16)
    assert way.amount == Range(16 * 48 * 3, 16 * 48 * 3)
    (way,) = ways([price(CAPACITY_BLOCK, 3)], whole(30, 16), 257, 257 * 8)
    assert way.amount is None


def test_idle_nodes_cost_where_hours_are_bought_by_use() -> None:
    found = ways([price(kind, 2) for kind in (ON_DEMAND, SAVINGS_PLAN, SPOT, ON_PREMISE)], whole(10, 8), 1, 8)
    amounts = {way.price.kind: way.amount.high if way.amount else None for way in found}
    assert amounts == {ON_DEMAND: 164, SAVINGS_PLAN: 160, SPOT: 164, ON_PREMISE: 160}


def test_what_no_cheaper_price_is_worth() -> None:
    found = {way.price.kind: way.remark for way in ways([price(ON_DEMAND, 2), price(SPOT, 2.5)], whole(1, 1), 1, 1)}
    assert found == {ON_DEMAND: "", SPOT: "no cheaper than on demand"}
    (alone,) = ways([price(SPOT, 2.5)], whole(1, 1), 1, 1)
    assert alone.remark == ""
