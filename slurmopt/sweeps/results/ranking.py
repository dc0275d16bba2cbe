"""Ranks the points of a sweep by a metric."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from slurmopt.runs import stored_config
from slurmopt.sweeps.results import outcomes
from slurmopt.sweeps.results.importance import Effect, effect, is_number, strongest_first
from slurmopt.sweeps.results.outcomes import Row, Table

_PIECE = 1000
"""Rows that are formatted at once."""
_MANY = 50_000
"""Points from which several processes work."""
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Ranking:
    """The points of a sweep in the order of a metric."""

    def __init__(self, table: Table, metric: str | None, maximize: bool) -> None:
        self.table = table
        self.metric = metric
        self.maximize = maximize
        self._finished = table.finished()
        self._having: list[int] = []
        """The places of finished points whose metric is a finite number, in the order of the points."""
        self._metrics = array("d")
        """Their metrics."""
        if metric is not None:
            self._sort(list(map(table.column(metric), self._finished)))
        self.effects = self._effects()

    def _sort(self, values: list[Any]) -> None:
        places = self._finished
        having = outcomes.having(values)
        self._having = [places[at] for at in having] if len(having) < len(places) else places
        self._metrics = array("d", map(values.__getitem__, having))
        self._finished = [places[at] for at in outcomes.in_order(values, having, self.maximize)]

    def places(self, most: int | None = None) -> list[int]:
        """The places of the finished points, the best first, then of the others; at most `most` of them, or all."""
        count = len(self.table.places) if most is None else min(most, len(self.table.places))
        if count <= len(self._finished):
            return self._finished[:count]
        finished = set(self._finished)
        others = (place for place in self.table.places if place not in finished)
        return [*self._finished, *islice(others, count - len(finished))]

    def written(self, write: Callable[[Iterable[Row]], str]) -> Iterator[str]:
        """What `write` returns for the rows, in pieces."""
        places = self.places()
        pieces = [places[at : at + _PIECE] for at in range(0, len(places), _PIECE)]

        def text_of(piece: list[int]) -> str:
            return write(self.table.rows(piece))

        return self._map(text_of, pieces)

    def _map(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
        """`map`, in several processes where there are many points."""
        if len(self.table.places) < _MANY:
            return map(work, items)
        from slurmopt.sweeps.status.parallel import parallel_map

        return parallel_map(work, items)

    @property
    def finished(self) -> Iterator[Row]:
        """The points that finished, the best first."""
        return self.table.rows(self._finished)

    @property
    def best(self) -> Row | None:
        """The best point that finished."""
        first = next(self.table.rows(self._finished[:1]), None) if self.metric else None
        return first if first is not None and is_number(outcomes.key_of(first, str(self.metric))) else None

    @property
    def numbers(self) -> list[tuple[Row, float]]:
        """The finished points whose metric is a finite number."""
        return list(zip(self.table.rows(self._having), self._metrics, strict=True))

    def _effects(self) -> list[Effect]:
        if not self._having:
            return []

        def of(axis: str) -> Effect | None:
            return effect(self.table.tried(axis, self._having), self._metrics, self.maximize)

        return strongest_first(self._map(of, [axis for axis in self.table.axes if axis != self.metric]))


def rank(table: Table, requested: str | None, maximize: bool) -> Ranking:
    """Ranks the points by the requested metric, or by that of the sweep's config."""
    group = stored_config.group(table.states.sweep.run, "sweep")
    configured = group.get("metric")
    metric = outcomes.chosen_metric(table, requested, configured if isinstance(configured, str) else None)
    return Ranking(table, metric, maximize or group.get("direction") == "maximize")
