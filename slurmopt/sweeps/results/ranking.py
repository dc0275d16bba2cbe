"""The points of a sweep in the order of a metric."""

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
"""Rows that are written at once."""
_MANY = 50_000
"""Points from which on several processes work."""
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Ranking:
    """The points of a sweep in the order of a metric."""

    def __init__(self, found: Table, metric: str | None, maximize: bool) -> None:
        self.found = found
        self.metric = metric
        self.maximize = maximize
        self._finished = found.finished()
        self._having: list[int] = []
        """The places of finished points that have the metric as a finite number, in the order of the points."""
        self._metrics = array("d")
        """These numbers."""
        if metric is not None:
            self._sort(list(map(found.column(metric), self._finished)))
        self.effects = self._effects()

    def _sort(self, values: list[Any]) -> None:
        places = self._finished
        having = outcomes.having(values)
        self._having = [places[at] for at in having] if len(having) < len(places) else places
        self._metrics = array("d", map(values.__getitem__, having))
        self._finished = [places[at] for at in outcomes.in_order(values, having, self.maximize)]

    def places(self, most: int | None = None) -> list[int]:
        """Of the finished points, the best first; then of the others. The first `most` of them, or all."""
        wanted = len(self.found.places) if most is None else min(most, len(self.found.places))
        if wanted <= len(self._finished):
            return self._finished[:wanted]
        finished = set(self._finished)
        others = (place for place in self.found.places if place not in finished)
        return [*self._finished, *islice(others, wanted - len(finished))]

    def written(self, write: Callable[[Iterable[Row]], str]) -> Iterator[str]:
        """What `write` makes of the rows."""
        places = self.places()
        pieces = [places[at : at + _PIECE] for at in range(0, len(places), _PIECE)]

        def text_of(piece: list[int]) -> str:
            return write(self.found.rows(piece))

        return self._map(text_of, pieces)

    def _map(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
        """`map`, by several processes where the points are many."""
        if len(self.found.places) < _MANY:
            return map(work, items)
        from slurmopt.sweeps.status.parallel import parallel_map

        return parallel_map(work, items)

    @property
    def finished(self) -> Iterator[Row]:
        """The points that finished, the best first."""
        return self.found.rows(self._finished)

    @property
    def best(self) -> Row | None:
        """The best point that finished."""
        first = next(self.found.rows(self._finished[:1]), None) if self.metric else None
        return first if first is not None and is_number(outcomes.key_of(first, str(self.metric))) else None

    @property
    def numbers(self) -> list[tuple[Row, float]]:
        """The finished points that have the metric as a finite number."""
        return list(zip(self.found.rows(self._having), self._metrics, strict=True))

    def _effects(self) -> list[Effect]:
        if not self._having:
            return []

        def of(axis: str) -> Effect | None:
            return effect(self.found.tried(axis, self._having), self._metrics, self.maximize)

        return strongest_first(self._map(of, [axis for axis in self.found.axes if axis != self.metric]))


def rank(found: Table, asked: str | None, maximize: bool) -> Ranking:
    """The points by the metric that was asked for, or that the sweep's config names."""
    group = stored_config.group(found.standing.sweep.run, "sweep")
    configured = group.get("metric")
    metric = outcomes.chosen_metric(found, asked, configured if isinstance(configured, str) else None)
    return Ranking(found, metric, maximize or group.get("direction") == "maximize")
