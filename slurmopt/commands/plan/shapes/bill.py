"""The bill of the shape to take: each way of paying for its GPU-hours, the checkpoints that it keeps, and transfers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from slurmopt.config.checkpoint import Checkpoint
from slurmopt.config.plan import Plan
from slurmopt.errors import one_line
from slurmopt.estimates.experiment import Experiment
from slurmopt.estimates.kept import Kept, kept
from slurmopt.ledger.prices import Price, Prices, StorageRate, TransferRate
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


@dataclass(frozen=True)
class Transfers:
    """Bytes that are moved at the file's rate."""

    size: float
    rate: TransferRate

    @property
    def amount(self) -> float:
        return self.size / _GB * self.rate.per_gb

    def as_json(self) -> dict[str, Any]:
        rate = self.rate
        return {
            "size": self.size,
            "per_gb": rate.per_gb,
            "date": rate.date,
            "source": rate.source,
            "amount": self.amount,
        }


@dataclass(frozen=True, kw_only=True)
class Bill:
    """All of it. Amounts are of the whole training unless they say a month."""

    currency: str
    months: Range
    """How long the training takes."""
    ways: list[Way]
    stored: list[Stored]
    transfers: Transfers | None
    not_counted: list[str]
    """Lines on what the config says that cannot be counted."""

    @property
    def storage(self) -> Range:
        """Of the checkpoints while the training runs."""
        return self.months * sum(each.a_month for each in self.stored)

    @property
    def beside(self) -> Range:
        """What comes to the GPU-hours, whichever way they are paid."""
        return self.storage + (0.0 if self.transfers is None else self.transfers.amount)

    def _total(self, way: Way) -> float | None:
        """The median: the sum of those of its parts."""
        if way.amount is None:
            return None
        transfers = 0.0 if self.transfers is None else self.transfers.amount
        return way.amount.middle + self.storage.middle + transfers

    @property
    def sources(self) -> list[str]:
        """Where each price stands, and of what date it is."""
        priced: list[Price | StorageRate | TransferRate] = [way.price for way in self.ways]
        priced += [each.rate for each in self.stored]
        priced += [] if self.transfers is None else [self.transfers.rate]
        return list(dict.fromkeys(f"prices of {one.date}: {one.source}" for one in priced))

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
                    "median": self._total(way),
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
                    "per_gb_month": each.rate.per_gb_month,
                    "date": each.rate.date,
                    "source": each.rate.source,
                    "a_month": each.a_month,
                }
                for each in self.stored
            ],
            "storage_amount": _ends(self.storage) if self.stored else None,
            "transfers": None if self.transfers is None else self.transfers.as_json(),
        }

    @property
    def columns(self) -> list[str]:
        return ["paid", "a GPU-hour", "price of", f"total {self.currency}", ""]

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
                way.price.date,
                "-" if (total := self._total(way)) is None else f"{total:,.0f}",
                way.remark,
            ]
            for way in self.ways
        ]

    @property
    def beside_lines(self) -> list[str]:
        """What comes to each total."""
        found = []
        for each in self.stored:
            copies = f"{each.kept.copies} checkpoints of {human_bytes(each.kept.size)}"
            rate = f"{each.rate.name} at {each.rate.per_gb_month:.4g} a GB and month"
            running = f"{self.months.middle * each.a_month:,.2f} {self.currency} while it runs"
            found.append(f"storage   {copies} on {rate}: {running}, {each.a_month:,.2f} a month")
        if (moved := self.transfers) is not None:
            rate = f"{human_bytes(moved.size)} at {moved.rate.per_gb:.4g} a GB"
            found.append(f"transfers {rate}: {moved.amount:,.2f} {self.currency}")
        return found

    def lines(self) -> list[str]:
        """For a terminal."""
        header = [name.upper() for name in self.columns]
        rows = ["", table(header, self.rows, terminal_width())] if self.rows else []
        return [*rows, *self.beside_lines]


def bill(asked: Experiment, plan: Plan, checkpoint: Checkpoint, shape: Shape, whole: Total) -> Bill:
    """The bill of a shape today."""
    prices, today = read_prices(), time.strftime("%Y-%m-%d", time.gmtime())
    assert asked.tokens is not None
    copies = {each.tier: each for each in kept(checkpoint, asked.model, asked.work, asked.tokens / asked.work.tokens)}
    stored, not_counted = list[Stored](), list[str]()
    for tier, name in plan.storage.named.items():
        if (rate := prices.storage_of(name, today)) is None:
            not_counted.append(f"plan.storage.{tier}: {_no_rate(prices, name, today)}")
        elif tier not in copies:
            not_counted.append(f"plan.storage.{tier}: nothing is counted: checkpoint.{tier} is off")
        else:
            stored.append(Stored(copies[tier], rate))
    transfers = _transfers(prices, plan, today)
    if plan.transfers is not None and transfers is None:
        not_counted.append("plan.transfers: the file of prices has no `transfer` that is valid today")
    return Bill(
        currency=prices.currency,
        months=whole.seconds * (1 / _MONTH),
        ways=ways(prices.ways(asked.cluster.gpu.device, today), whole, shape.nodes, shape.layout.ranks),
        stored=stored,
        transfers=transfers,
        not_counted=not_counted,
    )


def _no_rate(prices: Prices, name: str, today: str) -> str:
    names = sorted({each.name for each in prices.storage if each.date <= today})
    valid = ", ".join(map(one_line, names)) or "none: the file of prices has no `storage` that is valid today"
    return f"{one_line(name)!r} is no rate of storage; valid: {valid}"


def _transfers(prices: Prices, plan: Plan, today: str) -> Transfers | None:
    if plan.transfers is None or prices.transfer is None or prices.transfer.date > today:
        return None
    return Transfers(byte_count(plan.transfers), prices.transfer)


def _ends(each: Range | None) -> list[float] | None:
    return None if each is None else [each.low, each.high]
