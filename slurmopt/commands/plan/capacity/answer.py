"""The answer of `slurmopt plan capacity`, as lines for a terminal and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from slurmopt.commands.plan.rates import amount
from slurmopt.planning.capacity.commitment import Bill, best_level, bill, covered
from slurmopt.planning.capacity.demand import Demand, Job, week
from slurmopt.planning.capacity.queue import Waits, first_come, recorded
from slurmopt.planning.right_size import quantile
from slurmopt.runs.text_table import table, terminal_width
from slurmopt.units import human_count, human_seconds

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_SHORT = 14 * 24
"""Hours of history; less of them does not show how weeks differ."""
_BILLS = {
    "nothing": "all on demand",
    "on demand": "rest on demand",
    "spot": "rest on spot",
    "everything": "all committed",
}


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Of a GPU-hour."""

    committed: float
    on_demand: float
    spot: float | None
    currency: str
    source: str | None = None
    """Where they stand, if they were not given as options."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is printed."""

    jobs: Sequence[Job]
    demand: Demand
    peak: int
    """The most GPUs in use at one time."""
    per_node: int | None
    prices: Prices | None
    notes: tuple[str, ...]
    older: int
    """Jobs before the time that is looked at."""

    @property
    def unit(self) -> int:
        """GPUs that are committed to at once."""
        return self.per_node or 1

    @cached_property
    def level(self) -> int | None:
        """GPUs to commit to, with the rest on demand; None without prices."""
        prices = self.prices
        if prices is None:
            return None
        return best_level(self.demand.gpus, prices.committed, prices.on_demand, self.unit)

    @cached_property
    def bills(self) -> list[tuple[str, Bill]]:
        """What is committed, or how the rest is bought, and its cost."""
        prices, level = self.prices, self.level
        if prices is None or level is None:
            return []
        gpus, whole = self.demand.gpus, math.ceil(self.peak / self.unit) * self.unit
        found = [
            ("nothing", bill(gpus, 0, prices.committed, prices.on_demand)),
            ("on demand", bill(gpus, level, prices.committed, prices.on_demand)),
        ]
        if prices.spot is not None:
            of_spot = best_level(gpus, prices.committed, prices.spot, self.unit)
            found.append(("spot", bill(gpus, of_spot, prices.committed, prices.spot)))
        return [*found, ("everything", bill(gpus, whole, prices.committed, prices.on_demand))]

    @cached_property
    def waits(self) -> list[tuple[str, Waits]]:
        """As it was, on the commitment alone, and with as much as was ever used at one time."""
        found = [("recorded", recorded(self.jobs))]
        if self.level is not None:
            found.append(("committed", first_come(self.jobs, self.level)))
        return [*found, ("peak", first_come(self.jobs, max(self.peak, self.level or 0)))]

    @property
    def all_notes(self) -> list[str]:
        """What was assumed."""
        found = list(self.notes)
        if self.prices is not None and self.prices.source is not None:
            found.append(f"prices: {self.prices.source}")
        if self.older:
            found.append(f"{self.older:,} jobs ended before the time that is looked at; --days takes more")
        if len(self.demand.gpus) < _SHORT:
            shown = human_seconds(len(self.demand.gpus) * 3600)
            found.append(f"only {shown} of history: a commitment lasts longer than that shows")
        if self.per_node is None:
            found.append("how many GPUs a node has is not known, so that they are counted one by one: --gpus-per-node")
        found.append("demand is what ran: what waited, or was never submitted, is not in it")
        found.append("waits are first come, first served, with the GPUs as one pool, without priorities and backfill")
        return found


def lines(answer: Answer) -> list[str]:
    """The history, the commitment and its cost, the waits, and the week."""
    demand, hours = answer.demand, len(answer.demand.gpus)
    nodes = "" if answer.per_node is None else f"; {answer.per_node} GPUs a node"
    found = [
        f"{len(answer.jobs):,} jobs in {human_seconds(hours * 3600)}: {human_count(demand.gpu_hours)} GPU-hours, "
        f"{human_count(demand.gpu_hours / hours)} GPUs in the mean, {answer.peak:,} at most{nodes}"
    ]
    if answer.prices is not None:
        found += ["", *_bills(answer, answer.prices)]
    names = {"recorded": "as recorded", "committed": "commitment alone", "peak": "with the rest bought"}
    rows = [[names[what], *_wait_cells(each)] for what, each in answer.waits]
    found += ["", table(["WAIT", "GPUS", "JOBS", "MEAN", "P90", "NEVER START", ""], rows, terminal_width())]
    found += ["", *_week(answer)]
    if answer.prices is not None:
        found += ["", *_advice(answer, answer.prices)]
        found.append("next      slurmopt plan spot TRACE --work … tells what spot is worth for the rest")
    else:
        found += ["", "next      slurmopt plan capacity --committed PRICE --on-demand PRICE tells what to commit to"]
    return found + [f"note      {note}" for note in answer.all_notes]


def _bills(answer: Answer, prices: Prices) -> list[str]:
    header = ["PLAN", "COMMITTED", "FEE", "USED", "IDLE", "BOUGHT", "COST", "TOTAL", "A GPU-HOUR", ""]
    rows = []
    for what, each in answer.bills:
        average = each.total / answer.demand.gpu_hours if answer.demand.gpu_hours else None
        rows.append([
            _BILLS[what], f"{each.committed:,}", amount(each.fee, ""), f"{human_count(each.inside)} h",
            f"{human_count(each.idle)} h", f"{human_count(each.beyond)} h", amount(each.bought, ""),
            amount(each.total, prices.currency), "" if average is None else amount(average, prices.currency),
            "→" if what == "on demand" else "",
        ])  # fmt: skip
    return [table(header, rows, terminal_width())]


def _advice(answer: Answer, prices: Prices) -> list[str]:
    level, share = answer.level or 0, covered(prices.committed, prices.on_demand)
    if level == 0:
        return [f"commit    to nothing: {_why_nothing(answer, prices)}"]
    needed = quantile(answer.demand.gpus, share)
    whole = "" if answer.per_node is None else f", {level // answer.unit:,} node{'s' if level > answer.unit else ''}"
    (_, taken), *_ = [each for each in answer.bills if each[0] == "on demand"]
    found = [
        f"commit    to {level:,} GPUs{whole}: q = 1 - {prices.committed:g}/{prices.on_demand:g} = {share:.0%} of the "
        f"hours need at most {human_count(needed)}"
    ]
    if taken.amortised is not None and taken.utilisation is not None:
        found.append(
            f"an hour   of a GPU within it costs 0 more, and {amount(taken.amortised, prices.currency)} with its part "
            f"of the fee ({taken.utilisation:.0%} used); beyond it {amount(prices.on_demand, prices.currency)}"
        )
    return found


def _why_nothing(answer: Answer, prices: Prices) -> str:
    if prices.committed >= prices.on_demand:
        return "a committed GPU-hour costs no less than one on demand"
    share = covered(prices.committed, prices.on_demand)
    return f"{share:.0%} of the hours need at most {human_count(quantile(answer.demand.gpus, share))} GPUs"


def _wait_cells(each: Waits) -> list[str]:
    def shown(seconds: float | None) -> str:
        return "" if seconds is None else human_seconds(seconds)

    gpus = "" if each.gpus is None else f"{each.gpus:,}"
    return [gpus, f"{each.jobs:,}", shown(each.mean), shown(each.p90), f"{each.never:,}" if each.never else "", ""]


def _week(answer: Answer) -> list[str]:
    """Nodes by the hour, or GPUs where it is not known how many a node has."""
    what = "GPUs" if answer.per_node is None else "nodes"
    cells = [
        ["-" if gpus is None else str(math.ceil(gpus / answer.unit - 1e-6)) for gpus in day]
        for day in week(answer.demand)
    ]
    width = max(2, *(len(cell) for day in cells for cell in day)) + 1
    head = "".join(f"{hour:02d}".rjust(width) for hour in range(24))
    rows = [f"{name}{''.join(cell.rjust(width) for cell in day)}" for name, day in zip(_DAYS, cells, strict=True)]
    return [f"{what} that were enough in 90 % of the weeks, by the hour", f"   {head}", *rows]


def as_json(answer: Answer) -> dict[str, Any]:
    """The object that the command's module describes."""
    demand, prices, level = answer.demand, answer.prices, answer.level
    used = demand.gpu_hours
    commitment = None
    if prices is not None and level is not None:
        share = covered(prices.committed, prices.on_demand)
        commitment = {
            "share": share,
            "needed": quantile(demand.gpus, share) if share > 0 else 0.0,
            "gpus": level,
            "nodes": None if answer.per_node is None else level // answer.unit,
        }
    return {
        "history": {
            "jobs": len(answer.jobs),
            "hours": len(demand.gpus),
            "gpu_hours": used,
            "mean": used / len(demand.gpus),
            "most": answer.peak,
            "gpus_per_node": answer.per_node,
        },
        "commitment": commitment,
        "bills": [
            {"what": what, **asdict(each), "total": each.total, "utilisation": each.utilisation,
             "amortised": each.amortised, "average": each.total / used if used else None}
            for what, each in answer.bills
        ],
        "marginal": None if prices is None else {"inside": 0.0, "beyond": prices.on_demand},
        "waits": [{"what": what, **asdict(each)} for what, each in answer.waits],
        "week": week(demand),
        "currency": (prices.currency or None) if prices is not None else None,
        "notes": answer.all_notes,
    }  # fmt: skip
