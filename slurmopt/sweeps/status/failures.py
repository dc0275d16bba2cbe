"""Groups the failed points of a sweep by cause and error, so that a thousand equal failures are one line."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from slurmopt.grid.point_ranges import Ranges
from slurmopt.sweeps.status.point_states import BAD, Point, Rest, SweepStates

_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+(?:[.,]\d+)*(?:[eE][+-]?\d+)?")
_LONGEST = 300


@dataclass(frozen=True)
class Group:
    """Points that failed in the same way."""

    cause: str | None
    """A word of `slurmopt.restart.causes`."""
    error: str
    """That of `example`."""
    points: Ranges

    @property
    def example(self) -> int:
        """The first of them."""
        return self.points[0]

    def as_dict(self) -> dict[str, Any]:
        """What `--json` prints of it."""
        count = len(self.points)
        return {
            "cause": self.cause,
            "error": self.error,
            "count": count,
            "points": str(self.points),
            "example": self.example,
        }


def groups(states: SweepStates, among: Ranges | None = None, never_started: bool = True) -> list[Group]:
    """The failed points grouped by cause and error, without the numbers in it; the largest group first.

    `among`: only these points. `never_started`: also points whose array task failed before it started them.
    """
    numbers: dict[tuple[str | None, str], array[int]] = {}
    firsts: dict[tuple[str | None, str], Point] = {}
    for point in states.in_states(BAD, among):
        key = point.cause, normalised(_said(point))
        numbers.setdefault(key, array("q")).append(point.number)
        if key not in firsts or point.number < firsts[key].number:
            firsts[key] = point
    result = [Group(key[0], _said(firsts[key]), Ranges.of(members)) for key, members in numbers.items()]
    if never_started:
        result += _unstarted(states.rest_of(among))
    return sorted(result, key=lambda group: (-len(group.points), group.example))


def _unstarted(rests: Iterable[Rest]) -> Iterator[Group]:
    points_by_error: dict[str, Ranges] = {}
    for rest in rests:
        if rest.state in BAD:
            error = f"never started: {rest.detail or rest.state}"[:_LONGEST]
            points_by_error[error] = points_by_error.get(error, Ranges()).union(rest.points)
    return (Group(None, error, points) for error, points in points_by_error.items())


def _said(point: Point) -> str:
    return (point.error or point.detail or point.state)[:_LONGEST]


def normalised(error: str) -> str:
    """`error` with its numbers replaced, which differ from point to point."""
    return _NUMBERS.sub("N", error)
