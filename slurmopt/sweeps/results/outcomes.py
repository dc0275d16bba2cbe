"""The results of a sweep's points as a table: their values on the axes, and the metrics they ended with."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, isnan
from typing import Any

from slurmopt.config.check import did_you_mean
from slurmopt.errors import RunError, one_line
from slurmopt.grid import points_file
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.points import Points
from slurmopt.grid.records import Records
from slurmopt.run_folder.json_values import text
from slurmopt.sweeps.results.importance import AxisValues, is_number
from slurmopt.sweeps.status.ended_points import metrics_of
from slurmopt.sweeps.status.point_states import Point, SweepStates

SECONDS = "seconds"
_MOST_NAMED = 12
_PIECE = 1000


@dataclass(slots=True)
class Row:
    """One point; its fields are those of `slurmopt.sweeps.status.point_states.Point`."""

    point: int
    state: str
    pruned: bool
    values: dict[str, Any]
    """Axis key → value; empty where the values are no longer known."""
    metrics: dict[str, float]
    seconds: float | None
    attempt: int | None
    error: str | None
    ended: float | None


class Table:
    """The points that have started, or the selected ones of them. A place is the index of a point, counted from 0.

    Rows are made on demand: a million of them would fill the memory.
    """

    def __init__(self, states: SweepStates, points: Points, selected: Ranges | None) -> None:
        self.states, self.points, self.selected = states, points, selected
        self.axes = [column.key for column in points.columns]
        self._ends, self._ended = states.ends, len(states.ends)
        self._others = [states.points[number] for number in sorted(states.points)]
        """Their places follow those of the ends."""
        self._columns = [(axis, *points.places(axis)) for axis in self.axes if points.kind != "search"]
        self._searched: dict[int, dict[str, Any]] = {}
        self._records = Records(states.sweep)
        self.places: Sequence[int] = self._ordered()

    def _ordered(self) -> Sequence[int]:
        if self.selected is None and not self._others:
            return range(self._ended)
        others = (self._ended + at for at, point in enumerate(self._others) if self._is_selected(point))
        return sorted([*self._ends.rows(self.selected), *others], key=self.number)

    def _is_selected(self, point: Point) -> bool:
        return self.selected is None or point.number in self.selected

    @cached_property
    def metrics(self) -> list[str]:
        """The names of the metrics, ordered by the first point that has each."""
        first_points: dict[str, int] = {}
        for name, column in self._ends.metrics.items():
            row = next((row for row in self._ends.rows(self.selected) if column[row] is not None), None)
            if row is not None:
                first_points[name] = self._ends.numbers[row]
        for point in filter(self._is_selected, self._others):
            for name in _metrics_of(point):
                first_points[name] = min(point.number, first_points.get(name, point.number))
        return sorted(first_points, key=first_points.__getitem__)

    def number(self, place: int) -> int:
        return self._ends.numbers[place] if place < self._ended else self._others[place - self._ended].number

    def row(self, place: int) -> Row:
        if place < self._ended:
            return next(self._of_ends([place]))
        point = self._others[place - self._ended]
        rest = (point.seconds, point.attempt, point.error, point.ended)
        return Row(point.number, point.state, point.pruned, self.values(place), _metrics_of(point), *rest)

    def rows(self, places: Sequence[int]) -> Iterator[Row]:
        """The rows at these places, computed in blocks."""
        for at in range(0, len(places), _PIECE):
            piece = places[at : at + _PIECE]
            yield from self._of_ends(piece) if max(piece) < self._ended else map(self.row, piece)

    def _of_ends(self, places: Sequence[int]) -> Iterator[Row]:
        ends = self._ends
        verdicts = [ends.verdict(place) for place in places]
        return map(
            Row,
            [ends.numbers[place] for place in places],
            [verdict.state for verdict in verdicts],
            [verdict.pruned for verdict in verdicts],
            self._values(places),
            self._metrics(places),
            map(_or_none, [ends.seconds[place] for place in places]),
            [ends.attempt(place) for place in places],
            [None if verdict.error is None else text(verdict.error) for verdict in verdicts],
            map(_or_none, [ends.ended[place] for place in places]),
        )

    def _metrics(self, places: Sequence[int]) -> Iterable[dict[str, float]]:
        columns = self._ends.metrics.values()
        cells = [[column.floats[place] for place in places] for column in columns]
        if not cells or any(column.has_whole for column in columns) or any(any(map(isnan, column)) for column in cells):
            return map(self._ends.metrics_of, places)
        return (dict(zip(self._ends.metrics, row, strict=True)) for row in zip(*cells, strict=True))

    def _values(self, places: Sequence[int]) -> Iterable[dict[str, Any]]:
        numbers = [self._ends.numbers[place] for place in places]
        if not self._columns or max(numbers) >= len(self.points):
            return map(self.values, places)
        cells = [[values[where(number)] for number in numbers] for _, values, where in self._columns]
        return (dict(zip(self.axes, row, strict=True)) for row in zip(*cells, strict=True))

    def values(self, place: int) -> dict[str, Any]:
        """Axis key → value."""
        number = self.number(place)
        if self.points.kind == "search":
            if number not in self._searched:
                self._searched[number] = _searched(self._records.created(number)[:1], self.axes)
            return self._searched[number]
        if number >= len(self.points):
            return {}
        return {axis: values[where(number)] for axis, values, where in self._columns}

    def finished(self) -> list[int]:
        """The places of finished points, without those that a search pruned."""
        good = bytearray(self._ended + len(self._others))
        for row in self._ends.where(lambda verdict: verdict.state == "finished" and not verdict.pruned):
            good[row] = True
        for at, point in enumerate(self._others):
            good[self._ended + at] = point.state == "finished" and not point.pruned
        return [place for place in self.places if good[place]]

    def column(self, name: str) -> Callable[[int], Any]:
        """A function from a place to the point's value of `name`, which is a metric, an axis, or `seconds`. None or nan
        where the point has none."""
        metric = self._ends.metrics.get(name)
        if metric is not None and name not in (*self.axes, SECONDS) and not self._others:
            return metric.floats.__getitem__ if not metric.has_whole else metric.__getitem__
        return lambda place: key_of(self.row(place), name)

    def tried(self, axis: str, places: Sequence[int]) -> AxisValues:
        """The values that these points have on an axis."""
        if self.points.kind == "search":
            values_of_points = list(map(self.values, places))
            indices = [at if axis in values else -1 for at, values in enumerate(values_of_points)]
            return AxisValues(axis, [values.get(axis) for values in values_of_points], indices)
        values, where = next((values, where) for key, values, where in self._columns if key == axis)
        count = len(self.points)
        numbers = map(self.number if self._others else self._ends.numbers.__getitem__, places)
        return AxisValues(axis, values, array("q", (where(number) if number < count else -1 for number in numbers)))


def _or_none(value: float) -> float | None:
    return value if value == value else None  # not nan


def _metrics_of(point: Point) -> dict[str, float]:
    end = point.end or {}
    return metrics_of(end.get("metrics"), end.get("result"), end.get("outcome"))


def table(states: SweepStates, selected: Ranges | None = None) -> Table:
    """The table of the sweep's points, or of the `selected` ones. Raises ConfigError where points.json is damaged."""
    return Table(states, points_file.load(states.sweep.points_file), selected)


def _searched(journal: list[dict[str, Any]], axes: list[str]) -> dict[str, Any]:
    """The values that a search chose, from the point's `created` event."""
    for event in journal:
        if isinstance(values := event.get("values"), dict):
            return {axis: values[axis] for axis in axes if axis in values}
    return {}


def chosen_metric(table: Table, requested: str | None, configured: str | None) -> str | None:
    """The metric to sort by: the requested one, else `sweep.metric`, else the only one. RunError where no point has
    it."""
    name = requested if requested is not None else configured
    if name is None:
        return table.metrics[0] if len(table.metrics) == 1 else None
    if name in table.metrics or name in table.axes or name == SECONDS:
        return name
    if requested is None and not table.metrics:
        return None  # nothing has ended yet
    label = table.states.label
    if not table.metrics:
        ended = sum(row.ended is not None for row in map(table.row, table.places))
        why = f"none of the {ended} points that ended reported a metric" if ended else "no point has ended yet"
        raise RunError(
            f"{label} has no metric {one_line(name)!r}: {why}; a training reports it by "
            f"slurmopt.progress(step, {_as_keyword(name)}=…), or returns it"
        )
    valid = ", ".join(map(one_line, table.metrics[:_MOST_NAMED])) + (", …" if len(table.metrics) > _MOST_NAMED else "")
    others = ", ".join([*map(one_line, table.axes[:_MOST_NAMED]), SECONDS])
    hint = did_you_mean(name, [*table.metrics, *table.axes, SECONDS])
    raise RunError(f"{label} has no metric {one_line(name)!r}{hint}; valid: {valid}; or by {others}")


def _as_keyword(name: str) -> str:
    return name if name.isidentifier() else "name"


def key_of(row: Row, name: str) -> Any:
    """The point's value of `name`, which is a metric, an axis, or `seconds`; None where it has none."""
    if name in row.metrics:
        return row.metrics[name]
    return row.values.get(name, row.seconds if name == SECONDS else None)


def having(values: Sequence[Any]) -> list[int]:
    """The indices of the finite numbers among the values."""
    if set(map(type, values)) <= {int, float}:
        with suppress(OverflowError):  # by an int that no float can hold
            return [at for at, value in enumerate(values) if isfinite(value)]
    return [at for at, value in enumerate(values) if is_number(value)]


def in_order(values: Sequence[Any], numbers: list[int], maximize: bool) -> list[int]:
    """The indices of the values, the best first. Values that are not finite numbers come last, texts among them in
    alphabetical order. `numbers`: what `having` returned."""
    ordered = sorted(numbers, key=values.__getitem__, reverse=maximize)
    if len(numbers) == len(values):
        return ordered
    texts = [at for at, value in enumerate(values) if isinstance(value, (str, bool))]
    texts.sort(key=lambda at: str(values[at]), reverse=maximize)
    placed = {*numbers, *texts}
    return [*ordered, *texts, *(at for at in range(len(values)) if at not in placed)]
