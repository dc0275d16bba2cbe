"""The values of a sweep's points as columns for the page: numbers on a linear or logarithmic scale, or categories."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log
from typing import Any

from slurmopt.errors import one_line
from slurmopt.runs.text_table import cut
from slurmopt.sweeps.results.importance import is_number, shown
from slurmopt.sweeps.results.outcomes import SECONDS, Row, Table

MOST_AXES, MOST_METRICS = 40, 20
"""On the page; `--csv` has all."""
_LONGEST = 200
"""Characters of a value."""
_DECADE = 10.0
"""Numbers that span a smaller factor than this have a linear scale."""


@dataclass(frozen=True)
class PageColumn:
    """One axis or metric, with a cell for each point on the page."""

    name: str
    role: str
    """`axis`, `metric` or `time`."""
    cells: list[float | int | None]
    """Numbers, or indices into `names`; None where the point has no value."""
    names: list[str] | None = None
    """The categories; None where the values are numbers."""
    log: bool = False
    """Whether the scale is logarithmic."""
    odd: dict[int, str] = field(default_factory=dict)
    """Index of a cell → what is no finite number there: `nan`, `inf`."""


def columns(table: Table, rows: Sequence[Row]) -> list[PageColumn]:
    """The columns of these rows: the axes, the metrics, and the seconds."""
    logs = {column.key for column in table.points.columns if "log" in column.tags}
    found = [_axis(key, rows, key in logs) for key in table.axes[:MOST_AXES]]
    for name in table.metrics[:MOST_METRICS]:
        found.append(_numbers(name, "metric", [row.metrics.get(name, _NONE) for row in rows]))
    seconds = [_NONE if row.seconds is None else row.seconds for row in rows]
    if any(value is not _NONE for value in seconds):
        found.append(_numbers(SECONDS, "time", seconds))
    return found


_NONE = object()
"""In the place of a value that a point does not have; None is a value."""


def _axis(key: str, rows: Sequence[Row], log_tag: bool) -> PageColumn:
    """Categories are in the order of the points, which is that of the sweep's definition."""
    values = [row.values.get(key, _NONE) for row in rows]
    in_order = [row.values[key] for row in sorted(rows, key=lambda row: row.point) if key in row.values]
    if in_order and all(map(_is_float, in_order)):
        return _numbers(key, "axis", values, log_tag)
    names: dict[str, int] = {}
    for value in in_order:
        names.setdefault(text(value), len(names))
    cells = [None if value is _NONE else names[text(value)] for value in values]
    return PageColumn(text(key), "axis", [*cells], list(names))


def _numbers(name: str, role: str, values: list[Any], log_tag: bool = False) -> PageColumn:
    cells = [value if value is not _NONE and _is_float(value) else None for value in values]
    odd = {
        at: text(value)
        for at, (value, cell) in enumerate(zip(values, cells, strict=True))
        if cell is None and value is not _NONE
    }
    finite = [cell for cell in cells if cell is not None]
    is_log = bool(finite) and min(finite) > 0 and (log_tag or is_logarithmic(finite))
    return PageColumn(text(name), role, cells, None, is_log, odd)


def _is_float(value: Any) -> bool:
    """Whether `value` is a finite number that a page can calculate with."""
    try:
        return is_number(value) and abs(float(value)) < 1e300
    except OverflowError:
        return False


def is_logarithmic(values: Sequence[float]) -> bool:
    """Whether the numbers lie more evenly on a logarithmic scale: whether the widest gap between two neighbours is a
    smaller share of the whole there."""
    distinct = sorted(set(values))
    if distinct[0] <= 0 or distinct[-1] / distinct[0] < _DECADE:
        return False
    if len(distinct) == 2:
        return distinct[1] / distinct[0] >= _DECADE**2
    return _widest_gap(distinct, log) < _widest_gap(distinct, float)


def _widest_gap(ordered: Sequence[float], scale: Callable[[float], float]) -> float:
    places = list(map(scale, ordered))
    return max(after - before for before, after in pairwise(places)) / (places[-1] - places[0])


def text(value: Any) -> str:
    """A value as one short line."""
    if isinstance(value, (list, dict, tuple)):
        value = json.dumps(value, default=str, ensure_ascii=False)
    try:
        whole = shown(value)
    except ValueError:  # an int of more digits than Python writes
        whole = f"an integer of {value.bit_length():,} bits"
    return cut(one_line(whole[: 4 * _LONGEST]), _LONGEST)
