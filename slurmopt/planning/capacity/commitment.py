"""How many GPUs to commit to: the newsvendor's quantile of demand. Prices are those of a GPU-hour, in one currency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slurmopt.planning.right_size import quantile


@dataclass(frozen=True, kw_only=True)
class Bill:
    """What a commitment costs over the hours of the history."""

    committed: int
    """GPUs."""
    fee: float
    """Of the commitment, used or not."""
    inside: float
    """GPU-hours used within the commitment; each further one costs nothing."""
    idle: float
    """GPU-hours that were paid for and not used."""
    beyond: float
    """GPU-hours bought besides."""
    bought: float
    """What these cost."""

    @property
    def total(self) -> float:
        return self.fee + self.bought

    @property
    def amortised(self) -> float | None:
        """The fee by the GPU-hours that were used of it; None where none were."""
        return self.fee / self.inside if self.inside > 0 else None

    @property
    def utilisation(self) -> float | None:
        """The used part of the commitment; None without one."""
        paid = self.inside + self.idle
        return self.inside / paid if paid > 0 else None


def covered(committed: float, rest: float) -> float:
    """The share of hours whose demand the commitment is to cover, q = 1 - committed / rest: a further GPU of it costs
    `committed` in each hour, and saves `rest` in those hours that need more. 0 where it never pays."""
    return max(0.0, 1 - committed / rest) if rest > 0 else 0.0


def bill(gpus: Sequence[float], level: int, committed: float, rest: float) -> Bill:
    """The cost of committing to `level` GPUs, and of buying the rest, by the demand of each hour."""
    inside = math.fsum(min(each, level) for each in gpus)
    beyond = math.fsum(max(0.0, each - level) for each in gpus)
    hours = len(gpus)
    return Bill(
        committed=level,
        fee=committed * level * hours,
        inside=inside,
        idle=max(0.0, level * hours - inside),
        beyond=beyond,
        bought=rest * beyond,
    )


def best_level(gpus: Sequence[float], committed: float, rest: float, unit: int = 1) -> int:
    """The cheapest commitment in whole units, such as nodes: the quantile, or the unit below or above it. The cost is
    convex in the level, so that no other one is cheaper; of equals the smaller."""
    share = covered(committed, rest)
    if share <= 0:
        return 0
    level = quantile(gpus, share) / unit
    choices = sorted({math.floor(level) * unit, math.ceil(level) * unit})
    return min(choices, key=lambda each: bill(gpus, each, committed, rest).total)
