"""Failures of a sweep, grouped: a thousand points that fail for one reason are one line."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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


def groups(seen: SweepStates, among: Ranges | None = None, never_started: bool = True) -> list[Group]:
    """The failed points by what they say, numbers in it aside, and (`never_started`) those whose array task failed
    before it came to them; the largest group first. `among`: of these points alone."""
    numbers: dict[tuple[str | None, str], array[int]] = {}
    firsts: dict[tuple[str | None, str], Point] = {}
    for point in seen.in_states(BAD, among):
        same = point.cause, normalised(_said(point))
        numbers.setdefault(same, array("q")).append(point.number)
        if same not in firsts or point.number < firsts[same].number:
            firsts[same] = point
    made = [Group(same[0], _said(firsts[same]), Ranges.of(found)) for same, found in numbers.items()]
    if never_started:
        made += _unstarted(seen.rest_of(among))
    return sorted(made, key=lambda group: (-len(group.points), group.example))


def _unstarted(rests: Iterable[Rest]) -> Iterator[Group]:
    found: dict[str, Ranges] = {}
    for rest in rests:
        if rest.state in BAD:
            said = f"never started: {rest.detail or rest.state}"[:_LONGEST]
            found[said] = found.get(said, Ranges()).union(rest.points)
    return (Group(None, said, points) for said, points in found.items())


def _said(point: Point) -> str:
    return (point.error or point.detail or point.state)[:_LONGEST]


def normalised(error: str) -> str:
    """`error` without what differs from point to point."""
    return _NUMBERS.sub("N", error)
