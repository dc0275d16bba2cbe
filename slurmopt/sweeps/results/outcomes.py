"""What the points of a sweep came to: their values on the axes, and the numbers they ended with."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from slurmopt.sweeps.results.importance import Tried, is_number
from slurmopt.sweeps.status.ended_points import metrics_of
from slurmopt.sweeps.status.point_states import Point, SweepStates

SECONDS = "seconds"
_MOST_NAMED = 12
_PIECE = 1000


@dataclass(slots=True)
class Row:
    """One point; its fields as those of `slurmopt.sweeps.status.point_states.Point`."""

    point: int
    state: str
    pruned: bool
    values: dict[str, Any]
    """Axis key → value; empty where nobody knows it any more."""
    metrics: dict[str, float]
    seconds: float | None
    attempt: int | None
    error: str | None
    ended: float | None


class Table:
    """All points that have started, or the chosen ones of them, by places from 0 in the order of their numbers.

    A row is made when it is asked for: a million of them would fill the memory.
    """

    def __init__(self, standing: SweepStates, points: Points, chosen: Ranges | None) -> None:
        self.standing, self._points, self._chosen = standing, points, chosen
        self.axes = [column.key for column in points.columns]
        self._ends, self._ended = standing.ends, len(standing.ends)
        self._others = [standing.points[number] for number in sorted(standing.points)]
        """Behind the ends."""
        self._columns = [(axis, *points.places(axis)) for axis in self.axes if points.kind != "search"]
        self._searched: dict[int, dict[str, Any]] = {}
        self._records = Records(standing.sweep)
        self.places: Sequence[int] = self._ordered()

    def _ordered(self) -> Sequence[int]:
        if self._chosen is None and not self._others:
            return range(self._ended)
        others = (self._ended + at for at, one in enumerate(self._others) if self._is_chosen(one))
        return sorted([*self._ends.rows(self._chosen), *others], key=self.number)

    def _is_chosen(self, point: Point) -> bool:
        return self._chosen is None or point.number in self._chosen

    @cached_property
    def metrics(self) -> list[str]:
        """In the order in which points told of them."""
        found: dict[str, int] = {}
        for name, column in self._ends.metrics.items():
            row = next((row for row in self._ends.rows(self._chosen) if column[row] is not None), None)
            if row is not None:
                found[name] = self._ends.numbers[row]
        for one in filter(self._is_chosen, self._others):
            for name in _metrics_of(one):
                found[name] = min(one.number, found.get(name, one.number))
        return sorted(found, key=found.__getitem__)

    def number(self, place: int) -> int:
        return self._ends.numbers[place] if place < self._ended else self._others[place - self._ended].number

    def row(self, place: int) -> Row:
        if place < self._ended:
            return next(self._of_ends([place]))
        one = self._others[place - self._ended]
        told = (one.seconds, one.attempt, one.error, one.ended)
        return Row(one.number, one.state, one.pruned, self.values(place), _metrics_of(one), *told)

    def rows(self, places: Sequence[int]) -> Iterator[Row]:
        """The rows at these places, many at once."""
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
        if not self._columns or max(numbers) >= len(self._points):
            return map(self.values, places)
        cells = [[values[where(number)] for number in numbers] for _, values, where in self._columns]
        return (dict(zip(self.axes, row, strict=True)) for row in zip(*cells, strict=True))

    def values(self, place: int) -> dict[str, Any]:
        """Axis key → value."""
        number = self.number(place)
        if self._points.kind == "search":
            if number not in self._searched:
                self._searched[number] = _searched(self._records.created(number)[:1], self.axes)
            return self._searched[number]
        if number >= len(self._points):
            return {}
        return {axis: values[where(number)] for axis, values, where in self._columns}

    def finished(self) -> list[int]:
        """The places of points that came to their end: what a search gave up had no time to become good."""
        good = bytearray(self._ended + len(self._others))
        for row in self._ends.where(lambda verdict: verdict.state == "finished" and not verdict.pruned):
            good[row] = True
        for at, one in enumerate(self._others):
            good[self._ended + at] = one.state == "finished" and not one.pruned
        return [place for place in self.places if good[place]]

    def column(self, name: str) -> Callable[[int], Any]:
        """Place → what the point has under `name`: a metric, an axis, or its seconds; None or nan where it has none."""
        metric = self._ends.metrics.get(name)
        if metric is not None and name not in (*self.axes, SECONDS) and not self._others:
            return metric.floats.__getitem__ if not metric.has_whole else metric.__getitem__
        return lambda place: key_of(self.row(place), name)

    def tried(self, axis: str, places: Sequence[int]) -> Tried:
        """Which values of an axis these points have."""
        if self._points.kind == "search":
            known = list(map(self.values, places))
            indices = [at if axis in values else -1 for at, values in enumerate(known)]
            return Tried(axis, [values.get(axis) for values in known], indices)
        values, where = next((values, where) for key, values, where in self._columns if key == axis)
        count = len(self._points)
        numbers = map(self.number if self._others else self._ends.numbers.__getitem__, places)
        return Tried(axis, values, array("q", (where(number) if number < count else -1 for number in numbers)))


def _or_none(value: float) -> float | None:
    return value if value == value else None  # not nan


def _metrics_of(point: Point) -> dict[str, float]:
    end = point.end or {}
    return metrics_of(end.get("metrics"), end.get("result"), end.get("outcome"))


def table(standing: SweepStates, chosen: Ranges | None = None) -> Table:
    """The sweep's points, or `chosen` ones, with what is known of them. Raises ConfigError where points.json is
    damaged."""
    return Table(standing, points_file.load(standing.sweep.points_file), chosen)


def _searched(journal: list[dict[str, Any]], axes: list[str]) -> dict[str, Any]:
    """The values that a search chose, as the point's journal noted them when it was made."""
    for event in journal:
        if isinstance(told := event.get("values"), dict):
            return {axis: told[axis] for axis in axes if axis in told}
    return {}


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
        ended = sum(row.ended is not None for row in map(found.row, found.places))
        why = f"none of the {ended} points that ended told a metric" if ended else "no point has ended yet"
        raise RunError(
            f"{label} has no metric {one_line(name)!r}: {why}; a training tells it by "
            f"slurmopt.progress(step, {_as_keyword(name)}=…), or returns it"
        )
    valid = ", ".join(map(one_line, found.metrics[:_MOST_NAMED])) + (", …" if len(found.metrics) > _MOST_NAMED else "")
    others = ", ".join([*map(one_line, found.axes[:_MOST_NAMED]), SECONDS])
    meant = did_you_mean(name, [*found.metrics, *found.axes, SECONDS])
    raise RunError(f"{label} has no metric {one_line(name)!r}{meant}; valid: {valid}; or by {others}")


def _as_keyword(name: str) -> str:
    return name if name.isidentifier() else "name"


def key_of(row: Row, name: str) -> Any:
    """What a point has under `name`: a metric, an axis, or its seconds; None where it has none."""
    if name in row.metrics:
        return row.metrics[name]
    return row.values.get(name, row.seconds if name == SECONDS else None)


def having(values: Sequence[Any]) -> list[int]:
    """Where a finite number stands among the values."""
    if set(map(type, values)) <= {int, float}:
        return [at for at, value in enumerate(values) if isfinite(value)]
    return [at for at, value in enumerate(values) if is_number(value)]


def in_order(values: Sequence[Any], numbers: list[int], maximize: bool) -> list[int]:
    """Where the best of the values stands, the second and so on; those that are no finite number come last, texts among
    them by the alphabet. `numbers`: what `having` gives."""
    found = sorted(numbers, key=values.__getitem__, reverse=maximize)
    if len(numbers) == len(values):
        return found
    texts = [at for at, value in enumerate(values) if isinstance(value, (str, bool))]
    texts.sort(key=lambda at: str(values[at]), reverse=maximize)
    sorted_out = {*numbers, *texts}
    return [*found, *texts, *(at for at in range(len(values)) if at not in sorted_out)]
