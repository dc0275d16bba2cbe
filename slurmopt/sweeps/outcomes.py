"""What the points of a sweep came to: their values on the axes, and the numbers they ended with."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from slurmopt.config.check import did_you_mean
from slurmopt.errors import RunError, one_line
from slurmopt.folder import events
from slurmopt.folder.layout import RunFolder
from slurmopt.grid.points import Points
from slurmopt.sweeps.standing import Point, Standing

RESULT = "result"
"""What the metric is called where the function returned a plain number."""
SECONDS = "seconds"
_MOST_NAMED = 12


@dataclass
class Row:
    """One point."""

    point: Point
    values: dict[str, Any]
    """Axis key → value; empty where nobody knows it any more."""
    metrics: dict[str, float]


@dataclass
class Table:
    """All points that have started; `rows` in the order of their numbers until they are sorted."""

    standing: Standing
    axes: list[str]
    metrics: list[str]
    """In the order in which points told of them."""
    rows: list[Row]


def table(standing: Standing) -> Table:
    """The sweep's points with what is known of them. Raises ConfigError where points.json is damaged."""
    points = Points.load(standing.sweep.points_file)
    axes = [column.key for column in points.columns]
    rows = [_row(standing, points, axes, standing.points[number]) for number in sorted(standing.points)]
    metrics = list(dict.fromkeys(name for row in rows for name in row.metrics))
    return Table(standing, axes, metrics, rows)


def _row(standing: Standing, points: Points, axes: list[str], point: Point) -> Row:
    if points.kind == "search":
        values = _searched(standing.sweep.point(point.number), axes)
    else:
        values = points.values(point.number) if point.number < len(points) else {}
    return Row(point, values, metrics_of(point.end))


def _searched(run: RunFolder, axes: list[str]) -> dict[str, Any]:
    """The values that a search chose, as the point's journal noted them when it was made."""
    for event in events.parse(events.lines(run.events)[:1]):
        if isinstance(told := event.get("values"), dict):
            return {axis: told[axis] for axis in axes if axis in told}
    return {}


def metrics_of(end: dict[str, Any] | None) -> dict[str, float]:
    """The numbers of an `end`: what `progress` was told last, and what the function returned, which wins."""
    if end is None:
        return {}
    told, result = end.get("metrics"), end.get("result")
    found = dict(_numbers(told.items())) if isinstance(told, dict) else {}
    if isinstance(result, dict):
        found.update(_numbers(result.items()))
    elif result is not None and end.get("outcome") == "finished":
        found.update(_numbers([(RESULT, result)]))
    return found


def _numbers(pairs: Iterable[tuple[Any, Any]]) -> Iterable[tuple[str, float]]:
    for name, value in pairs:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield str(name), value


def chosen_metric(found: Table, asked: str | None, configured: str | None) -> str | None:
    """What to sort by: as asked, else `sweep.metric`, else the only metric there is. RunError where nobody has it."""
    name = asked if asked is not None else configured
    if name is None:
        return found.metrics[0] if len(found.metrics) == 1 else None
    if name in found.metrics or name in found.axes or name == SECONDS:
        return name
    if asked is None and not found.metrics:
        return None  # nothing has ended yet
    label = found.standing.label
    if not found.metrics:
        ended = sum(row.point.end is not None for row in found.rows)
        why = f"none of the {ended} points that ended told a metric" if ended else "no point has ended yet"
        raise RunError(
            f"{label} has no metric {one_line(name)!r}: {why}; a training tells it by "
            f"slurmopt.progress(step, {_as_keyword(name)}=…), or returns it"
        )
    valid = ", ".join(map(one_line, found.metrics[:_MOST_NAMED])) + (", …" if len(found.metrics) > _MOST_NAMED else "")
    raise RunError(f"{label} has no metric {one_line(name)!r}{did_you_mean(name, found.metrics)}; valid: {valid}")


def _as_keyword(name: str) -> str:
    return name if name.isidentifier() else "name"


def key_of(row: Row, name: str) -> Any:
    """What a point has under `name`: a metric, an axis, or its seconds; None where it has none."""
    if name in row.metrics:
        return row.metrics[name]
    return row.values.get(name, row.point.seconds if name == SECONDS else None)


def in_order(rows: list[Row], name: str, maximize: bool) -> list[Row]:
    """The best first; points without a finite number there last. Texts go by the alphabet."""
    numbers: list[tuple[float, Row]] = []
    texts: list[tuple[str, Row]] = []
    rest = []
    for row in rows:
        value = key_of(row, name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            numbers.append((-value if maximize else value, row))
        elif isinstance(value, (str, bool)):
            texts.append((str(value), row))
        else:
            rest.append(row)
    numbers.sort(key=lambda pair: pair[0])
    texts.sort(key=lambda pair: pair[0], reverse=maximize)
    return [row for _, row in numbers] + [row for _, row in texts] + rest
