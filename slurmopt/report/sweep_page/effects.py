"""Says what is known of the effect of each axis, and where there are too few points to tell."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from slurmopt.report.sweep_page.columns import text
from slurmopt.sweeps.results.importance import Effect, Level
from slurmopt.sweeps.results.ranking import Ranking

_FEW = 0.5
"""Where chance alone reaches this share, there are too few points to tell."""
_LEAST_LEFT = 3
"""Points more than values that an axis needs before its share is told."""


@dataclass(frozen=True)
class AxisEffect:
    """One line of the page."""

    axis: str
    share: float | None
    """Of the metric's variance; None where it is not told."""
    verdict: str
    best: str
    """The value with the best mean; "" where there is no effect to be told."""


def axis_effects(ranking: Ranking) -> list[AxisEffect]:
    """The effects, the largest first; then the axes of which one value was tried."""
    found = [_axis_effect(effect, ranking.maximize) for effect in ranking.effects]
    told = {effect.axis for effect in ranking.effects}
    others = [axis for axis in ranking.table.axes if axis not in told and axis != ranking.metric]
    return [*sorted(found, key=lambda one: -(one.share or 0)), *(_single(axis) for axis in others)]


def _single(axis: str) -> AxisEffect:
    return AxisEffect(text(axis), None, "only one value has a result", "")


def _axis_effect(effect: Effect, maximize: bool) -> AxisEffect:
    chance = chance_share(effect.levels)
    name = text(effect.axis)
    if chance is None or (effect.share <= chance and chance >= _FEW):
        return AxisEffect(name, None, "too few points to tell", "")
    if effect.share <= chance:
        return AxisEffect(name, None, f"no clear effect (less than {max(chance, 0.01):.0%})", "")
    best = (max if maximize else min)(effect.levels, key=lambda level: level.mean)
    count = "1 point" if best.count == 1 else f"{best.count:,} points"
    return AxisEffect(name, effect.share, f"{effect.share:.0%}", f"{_label(best)} (mean {best.mean:.4g}, {count})")


def _label(level: Level) -> str:
    """The value, or the first and the last of a bin, shortened."""
    ends = [f"{value:.3g}" if isinstance(value, float) else text(value) for value in (level.value, level.last)]
    return ends[0] if text(level.value) == text(level.last) else " … ".join(ends)


def chance_share(levels: list[Level]) -> float | None:
    """The share ε² that an axis without effect has by chance at most, in about 39 of 40 sweeps; None where that cannot
    be told.

    Without effect η² is Beta((k - 1) / 2, (n - k) / 2) distributed for n points and k values, so that ε² has the mean 0
    and the standard deviation sqrt(2 (k - 1) / ((n - k) (n + 1))); this is twice that."""
    count, groups = sum(level.count for level in levels), len(levels)
    if count - groups < _LEAST_LEFT:
        return None
    return 2 * sqrt(2 * (groups - 1) / ((count - groups) * (count + 1)))
