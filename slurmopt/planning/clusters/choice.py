"""Which of several clusters to take for one training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MORE_MONEY = 0.2
"""An earlier finish may cost this part more than the least: as for numbers of nodes of one cluster."""


@dataclass(frozen=True)
class Option:
    """A cluster on which the training fits."""

    name: str
    seconds: float
    """Of the same work everywhere: the whole training, or a step."""
    cost: float | None
    """Of that work; None where no price is known."""


def chosen(options: Sequence[Option]) -> Option | None:
    """The fastest of those that cost at most a fifth more than the least; where no price is known, the fastest. One
    without a price is not taken beside others that have one. None for none."""
    priced = [one for one in options if one.cost is not None]
    if not priced:
        return min(options, key=lambda one: one.seconds, default=None)
    least = min(one.cost or 0.0 for one in priced)
    return min((one for one in priced if (one.cost or 0.0) <= (1 + MORE_MONEY) * least), key=lambda one: one.seconds)


def front(options: Sequence[Option]) -> list[Option]:
    """Those with a price that no other one beats in both time and cost."""
    priced = [one for one in options if one.cost is not None]
    return [one for one in priced if not any(_beats(other, one) for other in priced)]


def _beats(other: Option, one: Option) -> bool:
    assert one.cost is not None
    assert other.cost is not None
    is_as_good = other.seconds <= one.seconds and other.cost <= one.cost
    return is_as_good and (other.seconds, other.cost) != (one.seconds, one.cost)
