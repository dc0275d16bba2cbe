"""The bill of the shape to take: each way of paying for its GPU-hours, the checkpoints that it keeps, and transfers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from slurmopt.config.checkpoint import Checkpoint
from slurmopt.config.plan import Plan
from slurmopt.errors import ConfigError, one_line
from slurmopt.estimates.experiment import Experiment
from slurmopt.estimates.kept import Kept, kept
from slurmopt.ledger.prices import Prices, StorageRate
from slurmopt.planning.cost import Total
from slurmopt.planning.paying import Way, ways
from slurmopt.planning.ranges import Range
from slurmopt.planning.shapes import Shape
from slurmopt.report.run.price_file import read_prices
from slurmopt.runs.text_table import table, terminal_width
from slurmopt.units import byte_count, human_bytes

_GB = 1e9
_MONTH = 730 * 3600.0
"""Seconds of the month of 730 hours by which clouds bill storage."""


@dataclass(frozen=True)
class Stored:
    """The checkpoints of one tier at the rate of its storage."""

    kept: Kept
    rate: StorageRate

    @property
    def a_month(self) -> float:
        return self.kept.copies * self.kept.size / _GB * self.rate.per_gb_month


@dataclass(frozen=True, kw_only=True)
class Bill:
    """All of it. Amounts are of the whole training unless they say a month."""

    currency: str
    months: Range
    """How long the training takes."""
    ways: list[Way]
    stored: list[Stored]
    transfers: float | None

    @property
    def storage(self) -> Range:
        """Of the checkpoints while the training runs."""
        return self.months * sum(each.a_month for each in self.stored)

    @property
    def beside(self) -> Range:
        """What comes to the GPU-hours, whichever way they are paid."""
        return self.storage + (self.transfers or 0.0)

    def as_json(self) -> dict[str, Any]:
        """The keys are those of `cost` in `slurmopt.commands.plan.shapes.main`."""
        return {
            "currency": self.currency,
            "ways": [
                {
                    "kind": way.price.kind,
                    "terms": way.price.terms,
                    "per_hour": way.price.per_hour,
                    "date": way.price.date,
                    "source": way.price.source,
                    "amount": _ends(way.amount),
                    "total": None if way.amount is None else _ends(way.amount + self.beside),
                    "remark": way.remark,
                }
                for way in self.ways
            ],
            "storage": [
                {
                    "tier": each.kept.tier,
                    "copies": each.kept.copies,
                    "size": each.kept.size,
                    "rate": each.rate.name,
                    "date": each.rate.date,
                    "a_month": each.a_month,
                }
                for each in self.stored
            ],
            "storage_amount": _ends(self.storage) if self.stored else None,
            "transfers": self.transfers,
        }

    @property
    def columns(self) -> list[str]:
        return ["paid", "GPU-h", f"total {self.currency}", ""]

    @property
    def rows(self) -> list[list[str]]:
        """One for each way of paying, with a cell for each of `columns`; none where there is one way and nothing
        else."""
        if len(self.ways) < 2 and not self.beside_lines:
            return []
        return [
            [
                " ".join(filter(None, (way.price.kind, way.price.terms))),
                f"{way.price.per_hour:.4g}",
                "-" if way.amount is None else f"{(way.amount + self.beside).middle:,.0f}",
                way.remark,
            ]
            for way in self.ways
        ]

    @property
    def beside_lines(self) -> list[str]:
        """What comes to each total."""
        found = [
            f"storage   {each.kept.copies} checkpoints of {human_bytes(each.kept.size)} on {each.rate.name}: "
            f"{self.months.middle * each.a_month:,.2f} {self.currency} while it runs, {each.a_month:,.2f} a month"
            for each in self.stored
        ]
        return found if self.transfers is None else [*found, f"transfers {self.transfers:,.2f} {self.currency}"]

    def lines(self) -> list[str]:
        """For a terminal."""
        header = [name.upper() for name in self.columns]
        rows = ["", table(header, self.rows, terminal_width())] if self.rows else []
        return [*rows, *self.beside_lines]


def bill(asked: Experiment, plan: Plan, checkpoint: Checkpoint, shape: Shape, whole: Total) -> Bill:
    """The bill of a shape today. Raises ConfigError where the config names a rate that the file of prices lacks."""
    prices, today = read_prices(), time.strftime("%Y-%m-%d", time.gmtime())
    assert asked.tokens is not None
    copies = {each.tier: each for each in kept(checkpoint, asked.model, asked.work, asked.tokens / asked.work.tokens)}
    stored = [
        Stored(copies[tier], _rate(prices, tier, name, today))
        for tier, name in plan.storage.named.items()
        if tier in copies
    ]
    known = prices.ways(asked.cluster.gpu.device, today)
    return Bill(
        currency=prices.currency,
        months=whole.seconds * (1 / _MONTH),
        ways=ways(known, whole, shape.nodes, shape.layout.ranks),
        stored=stored,
        transfers=_transfers(prices, plan, today),
    )


def _rate(prices: Prices, tier: str, name: str, today: str) -> StorageRate:
    rate = prices.storage_of(name, today)
    if rate is None:
        names = sorted({each.name for each in prices.storage if each.date <= today})
        valid = ", ".join(map(one_line, names)) or "none: the file of prices has no `storage` that is valid today"
        raise ConfigError(f"{one_line(name)!r} is no rate of storage; valid: {valid}", f"plan.storage.{tier}")
    return rate


def _transfers(prices: Prices, plan: Plan, today: str) -> float | None:
    if plan.transfers is None:
        return None
    if prices.transfer is None or prices.transfer.date > today:
        raise ConfigError("needs `transfer` in the file of prices, which has no rate that is valid", "plan.transfers")
    return byte_count(plan.transfers) / _GB * prices.transfer.per_gb


def _ends(each: Range | None) -> list[float] | None:
    return None if each is None else [each.low, each.high]
