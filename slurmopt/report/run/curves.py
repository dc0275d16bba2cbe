"""Curves over the wall clock of a run, from the series of all its nodes: step rate, activity, memory, power."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from slurmopt.report.run.measures import NodeSeries
from slurmopt.report.run.run_report import Line, Panel
from slurmopt.run_folder.series.series import Series

POINTS = 400
"""At most."""
_SHORTEST = 1.0
"""Seconds between two points."""


@dataclass(frozen=True)
class _Kind:
    """A panel: the kind of column that it shows."""

    title: str
    column: str
    unit: str
    scale: float = 1.0
    worst: str | None = None
    """`min` or `max`: a second curve is that of the node which is so on the mean."""


_KINDS = (
    _Kind("Step rate", "rank.steps", "steps/s"),
    _Kind("GPU activity", "gpu.util", "percent", 0.01, "min"),
    _Kind("Tensor activity", "gpu.tensor", "percent", 1.0, "min"),
    _Kind("Waiting for input", "rank.input.share", "percent", 1.0, "max"),
    _Kind("GPU memory", "gpu.memory", "bytes", 1.0, "max"),
    _Kind("Power of a GPU", "gpu.power", "watts", 1.0, "min"),
    _Kind("CPU cores in use on a node", "node.cpu", "cores", 1.0, "max"),
    _Kind("Host memory of a node", "node.memory", "bytes", 1.0, "max"),
)


@dataclass
class _Sums:
    """Sums of values and weights at each point."""

    total: list[float]
    weight: list[float]

    @classmethod
    def zero(cls, points: int) -> _Sums:
        return cls([0.0] * points, [0.0] * points)

    def add(self, spans: Sequence[range], values: Sequence[float | None], seconds: Sequence[float]) -> None:
        """Adds one column of a series; `spans`: the points that each of its rows lies on."""
        for span, value, weight in zip(spans, values, seconds, strict=True):
            if value is not None:
                for point in span:
                    self.total[point] += value * weight
                    self.weight[point] += weight

    def means(self, scale: float) -> tuple[float | None, ...]:
        return tuple(
            scale * total / weight if weight else None for total, weight in zip(self.total, self.weight, strict=True)
        )

    @property
    def mean(self) -> float | None:
        return sum(self.total) / weight if (weight := sum(self.weight)) else None


@dataclass
class _Clock:
    """The points of time of all curves."""

    first: float
    step: float
    points: int
    spans: dict[int, list[range]] = field(default_factory=dict)

    def of(self, series: Series) -> list[range]:
        """The points that each row of a series lies on."""
        if id(series) not in self.spans:
            self.spans[id(series)] = [
                range(self._point(end - seconds), self._point(end - 1e-6) + 1)
                for end, seconds in zip(series.times, series.seconds, strict=True)
            ]
        return self.spans[id(series)]

    def _point(self, time: float) -> int:
        return min(self.points - 1, max(0, int((time - self.first) / self.step)))

    @property
    def times(self) -> tuple[float, ...]:
        """When each point ends."""
        return tuple(self.first + self.step * (point + 1) for point in range(self.points))


def panels(nodes: Sequence[NodeSeries]) -> list[Panel]:
    """The panels for which something was measured."""
    rows = [(one.times[0] - one.seconds[0], one.times[-1]) for node in nodes for one in node.series if one.times]
    if not rows:
        return []
    first, last = min(begin for begin, _ in rows), max(end for _, end in rows)
    points = min(POINTS, max(1, math.ceil((last - first) / _SHORTEST)))
    clock = _Clock(first, (last - first) / points or _SHORTEST, points)
    return [panel for kind in _KINDS if (panel := _panel(kind, nodes, clock)) is not None]


def _panel(kind: _Kind, nodes: Sequence[NodeSeries], clock: _Clock) -> Panel | None:
    of_nodes = {node.node: _of_node(kind, node, clock) for node in nodes}
    overall = _Sums.zero(clock.points)
    for sums in of_nodes.values():
        overall.total = [a + b for a, b in zip(overall.total, sums.total, strict=True)]
        overall.weight = [a + b for a, b in zip(overall.weight, sums.weight, strict=True)]
    if overall.mean is None:
        return None
    lines = [Line("mean of the ranks" if kind.column.startswith("rank") else "mean", overall.means(kind.scale))]
    means = {node: mean for node, sums in of_nodes.items() if (mean := sums.mean) is not None}
    if kind.worst and len(means) > 1:
        worst = (min if kind.worst == "min" else max)(means, key=lambda node: means[node])
        label = f"{'lowest' if kind.worst == 'min' else 'highest'} node: {worst}"
        lines.append(Line(label, of_nodes[worst].means(kind.scale)))
    return Panel(kind.title, kind.unit, clock.times, tuple(lines), _top(kind, nodes))


def _of_node(kind: _Kind, node: NodeSeries, clock: _Clock) -> _Sums:
    sums = _Sums.zero(clock.points)
    by_series: dict[int, list[tuple[Series, str]]] = {}
    for series, column in node.columns(kind.column):
        by_series.setdefault(id(series), []).append((series, column))
    for columns in by_series.values():
        series = columns[0][0]
        sums.add(clock.of(series), _means_of_rows([series.values[column] for _, column in columns]), series.seconds)
    return sums


def _means_of_rows(columns: Sequence[Sequence[float | None]]) -> Sequence[float | None]:
    """The mean of several columns, row by row."""
    if len(columns) == 1:
        return columns[0]
    count = len(columns)
    if not any(None in column for column in columns):
        return [sum(row) / count for row in zip(*columns, strict=True)]
    return [_mean(row) for row in zip(*columns, strict=True)]


def _mean(row: Iterable[float | None]) -> float | None:
    known = [value for value in row if value is not None]
    return sum(known) / len(known) if known else None


def _top(kind: _Kind, nodes: Sequence[NodeSeries]) -> float | None:
    if kind.unit == "percent":
        return 1.0
    fact = {"gpu.memory": "memory", "gpu.power": "power_limit"}.get(kind.column)
    if fact is None:
        return None
    return max((limit for node in nodes if (limit := node.of_gpus(fact)) is not None and limit > 0), default=None)
