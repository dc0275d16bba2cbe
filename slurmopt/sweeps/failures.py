"""Failures of a sweep, grouped: a thousand points that fail for one reason are one line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from slurmopt.grid.ranges import Ranges
from slurmopt.sweeps.standing import BAD, Point, Rest

_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+(?:[.,]\d+)*(?:[eE][+-]?\d+)?")
_LONGEST = 300


@dataclass(frozen=True)
class Group:
    """Points that failed in the same way."""

    cause: str | None
    """A word of `slurmopt.survival.causes`."""
    error: str
    """That of `example`."""
    points: Ranges

    @property
    def example(self) -> int:
        """The first of them."""
        return self.points[0]


def groups(points: Iterable[Point], never_started: Iterable[Rest] = ()) -> list[Group]:
    """The failed among `points` by what they say, numbers in it aside, and those whose array task failed before it
    came to them; the largest group first."""
    found: dict[tuple[str | None, str], list[Point]] = {}
    for point in points:
        if point.state in BAD:
            found.setdefault((point.cause, normalised(_said(point))), []).append(point)
    made = [_group(cause, same) for (cause, _), same in found.items()]
    unstarted: dict[str, Ranges] = {}
    for rest in never_started:
        if rest.state in BAD:
            said = f"never started: {rest.detail or rest.state}"[:_LONGEST]
            unstarted[said] = unstarted.get(said, Ranges()).union(rest.points)
    made += [Group(None, said, points) for said, points in unstarted.items()]
    return sorted(made, key=lambda group: (-len(group.points), group.example))


def _group(cause: str | None, same: list[Point]) -> Group:
    first = min(same, key=lambda point: point.number)
    return Group(cause, _said(first), Ranges.of(point.number for point in same))


def _said(point: Point) -> str:
    return (point.error or point.detail or point.state)[:_LONGEST]


def normalised(error: str) -> str:
    """`error` without what differs from point to point."""
    return _NUMBERS.sub("N", error)
