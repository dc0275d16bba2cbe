"""The price of GPU-hours, of the file of prices that reports use."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from slurmopt.planning.cost import Total
from slurmopt.planning.hardware import Gpu
from slurmopt.planning.paying import ways
from slurmopt.planning.ranges import Range
from slurmopt.report.run.price_file import read_prices


@dataclass(frozen=True)
class Money:
    """An amount, and where its price comes from."""

    amount: Range
    currency: str
    date: str
    source: str

    def as_json(self) -> dict[str, Any]:
        amount = [self.amount.low, self.amount.high]
        return {"amount": amount, "currency": self.currency, "date": self.date, "source": self.source}


def money_of(whole: Total, nodes: int, gpus: int, gpu: Gpu) -> Money | None:
    """What a training on so many nodes and GPUs costs today, by the first price that fits; None where none is known
    that is valid yet, or where it cannot be paid so. Raises ConfigError where the file has nonsense in it."""
    today = time.strftime("%Y-%m-%d", time.gmtime())
    price = read_prices().price_of(gpu.device, today)
    if price is None or price.date > today:
        return None
    (way,) = ways([price], whole, nodes, gpus)
    return None if way.amount is None else Money(way.amount, price.currency, price.date, price.source)
