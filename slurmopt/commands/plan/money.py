"""The price of GPU-hours, of the file of prices that reports use."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from slurmopt.planning.hardware import Gpu
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


def money_of(gpu_hours: Range, gpu: Gpu) -> Money | None:
    """What so many GPU-hours cost today; None where no price is known that is valid yet. Raises ConfigError where the
    file has nonsense in it."""
    prices = read_prices()
    today = time.strftime("%Y-%m-%d", time.gmtime())
    price = prices.price_of(gpu.device, today)
    if price is None or price.date > today:
        return None
    return Money(gpu_hours * price.per_hour, price.currency, price.date, price.source)
