"""Where the shapes of a plan lie in a picture of time against what it costs. The template draws them as SVG.

Both scales are logarithmic. What a shape costs is its time by a constant, so that the two ends of its interval belong
together: an interval is a line from the cheap and fast end to the other one, not a box.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from slurmopt.planning.ranges import Range

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_TIMES = (
    *(each * _MINUTE for each in (1, 2, 5, 10, 30)), *(each * _HOUR for each in (1, 2, 6, 12)),
    *(each * _DAY for each in (1, 2, 7, 14, 30, 60, 180, 365)),
)  # fmt: skip
_MOST_TICKS = 6
_LEAST_SPAN = math.log(1.2)
_ROOM = 0.08
"""The part of the width and of the height that is left free at each end."""
_MANY = 6
"""With more points a label is the number alone."""


@dataclass(frozen=True)
class Place:
    """A shape of the plan. Positions are percent of the width from the left, and of the height from the top."""

    label: str
    words: str
    kind: str
    """`taken`, `front` or `other`."""
    x: float
    y: float
    ends: tuple[float, float, float, float]
    """The interval: x and y of its low end, x and y of its high end."""
    at_right: bool
    """Whether its label goes to the left of it."""


@dataclass(frozen=True)
class Front:
    """The picture."""

    places: tuple[Place, ...]
    across: tuple[tuple[float, str], ...]
    """Marks of the scale of time: position and label."""
    up: tuple[tuple[float, str], ...]
    """Those of the other scale."""
    line: tuple[tuple[float, float, float, float], ...]
    """The pieces of the line through the front."""


@dataclass(frozen=True)
class Point:
    """What is to be drawn of a shape."""

    nodes: int
    kind: str
    time: Range
    cost: Range
    words: str


def picture(
    points: Sequence[Point], time_text: Callable[[float], str], cost_text: Callable[[float], str]
) -> Front | None:
    """The picture; None where there is no point that has a place on a logarithmic scale."""
    known = [one for one in points if _is_drawable(one.time) and _is_drawable(one.cost)]
    if not known:
        return None
    across, up = _Scale([one.time for one in known]), _Scale([one.cost for one in known])
    places = tuple(_place(one, across, up, len(known) > _MANY) for one in known)
    front = sorted((one for one in places if one.kind != "other"), key=lambda one: one.x)
    return Front(
        places=places,
        across=tuple((round(100 * across.at(each), 2), time_text(each)) for each in _times(across)),
        up=tuple((round(100 - 100 * up.at(each), 2), cost_text(each)) for each in _decades(up)),
        line=tuple((a.x, a.y, b.x, b.y) for a, b in pairwise(front)),
    )


def _is_drawable(each: Range) -> bool:
    return 0 < each.low <= each.high < 1e200


class _Scale:
    """Values → the part of the way from the least to the largest, by their logarithms."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        low, high = math.log(min(each.low for each in ranges)), math.log(max(each.high for each in ranges))
        self._span = max(high - low, _LEAST_SPAN)
        self._first = (low + high - self._span) / 2

    def at(self, value: float) -> float:
        return _ROOM + (1 - 2 * _ROOM) * (math.log(value) - self._first) / self._span

    @property
    def ends(self) -> tuple[float, float]:
        return math.exp(self._first), math.exp(self._first + self._span)


def _place(one: Point, across: _Scale, up: _Scale, is_short: bool) -> Place:
    x, y = 100 * across.at(one.time.middle), 100 - 100 * up.at(one.cost.middle)
    ends = [
        round(each, 2)
        for end in ("low", "high")
        for each in (100 * across.at(getattr(one.time, end)), 100 - 100 * up.at(getattr(one.cost, end)))
    ]
    plural = "" if one.nodes == 1 else "s"
    return Place(
        label=f"{one.nodes:,}" if is_short else f"{one.nodes:,} node{plural}",
        words=one.words,
        kind=one.kind,
        x=round(x, 2),
        y=round(y, 2),
        ends=(ends[0], ends[1], ends[2], ends[3]),
        at_right=x > 80,
    )


def _times(scale: _Scale) -> list[float]:
    """Round times on the scale; where it is below a minute or has too few of them, 1, 2 and 5 by powers of ten."""
    low, high = scale.ends
    found = _thinned([each for each in _TIMES if low <= each <= high])
    return found if len(found) > 1 else _decades(scale)


def _decades(scale: _Scale) -> list[float]:
    low, high = scale.ends
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0), tuple(1 + each / 10 for each in range(90))):
        found = [digit * 10.0**power for power in powers for digit in digits]
        if len(inside := [each for each in found if low <= each <= high]) > 1:
            return _thinned(inside)
    return [low, high]


def _thinned(values: Sequence[float]) -> list[float]:
    return list(values[:: math.ceil(len(values) / _MOST_TICKS)]) if values else []
