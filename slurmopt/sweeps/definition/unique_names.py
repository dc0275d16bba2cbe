"""Finds the points whose readable names need their number, because another point would have the same name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from slurmopt.grid.point_names import REFERENCE, readable
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.points import Points

_MOST = 100_000
"""In a sweep of more points all names have the number; the names are not compared."""


def points_needing_numbers(points: Points) -> Ranges | None:
    """The points whose names need their number; None: all of them."""
    if points.folder is None:
        return Ranges()
    if points.kind == "search":
        points.filled_name(0, points.first)  # raises for an unknown key
        return None
    points.filled_name(0)
    swept = {column.key for column in points.columns}
    if len(points) > _MOST or not all(match[1] in swept for match in REFERENCE.finditer(points.folder)):
        return None
    names: Sequence[str] = [readable(points.filled_name(point), None) for point in range(len(points))]
    count = Counter(names)
    return Ranges.of(point for point, name in enumerate(names) if count[name] > 1)
