"""Stores the ended points of a sweep in columns: a million take 50 MB, and 8 MB more for each metric."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from math import nan
from typing import Any, NamedTuple

from slurmopt.grid.point_ranges import Ranges
from slurmopt.run_folder.outcome import FINISHED
from slurmopt.runs.status.state import state_at_end
from slurmopt.sweeps.status.point_event import PointEvent

RESULT = "result"
"""The name of the metric where the function returned a plain number."""
_NONE = -1
_MOST_SHARED = 10_000
"""Verdicts that are shared at most: a million points may fail in a million ways."""
_PLAIN_COLUMNS = ("numbers", "started", "ended", "seconds", "_attempts")
_FLOAT, _WHOLE, _LACKING = range(3)
_EXACT = 2**53
_PLAIN = {int, float}


class Verdict(NamedTuple):
    """The fields that many ends have in common."""

    state: str
    cancelled: bool
    outcome: str | None
    cause: str | None
    error: str | None
    reason: str | None
    rank: int | None
    pruned: bool

    def as_end(self) -> dict[str, Any]:
        """The fields as in an `end` event."""
        return {name: getattr(self, name) for name in ("outcome", "cause", "error", "reason", "rank", "pruned")}

    @property
    def detail(self) -> str | None:
        return state_at_end(self.as_end(), self.cancelled)[1]


class Numbers:
    """The values of one metric for all ends."""

    def __init__(self, before: int) -> None:
        """`before`: how many earlier ends lack the metric."""
        self.floats = array("d", [nan]) * before
        """The values as floats; nan also where an end lacks the metric."""
        self.has_whole = False
        """Whether some values are integers, which are returned as integers."""
        self._kinds = bytearray([_LACKING]) * before
        self._large: dict[int, int] = {}
        """Row → its integer, where a float cannot represent it."""

    def __getitem__(self, row: int) -> float | None:
        """The value; None where the end lacks the metric."""
        kind = self._kinds[row]
        if kind == _FLOAT:
            return self.floats[row]
        if kind == _LACKING:
            return None
        return self._large[row] if row in self._large else int(self.floats[row])

    def extend(self, values: Sequence[float | None]) -> None:
        """Appends values; None for an end that lacks the metric."""
        if int in set(map(type, values)):
            self._extend_with_whole(values)
            return
        self._kinds.extend([_LACKING if value is None else _FLOAT for value in values])
        self.floats.extend([nan if value is None else value for value in values])

    def _extend_with_whole(self, values: Sequence[float | None]) -> None:
        self.has_whole = True
        for value in values:
            self._kinds.append(_LACKING if value is None else _WHOLE if isinstance(value, int) else _FLOAT)
            if isinstance(value, int) and abs(value) > _EXACT:
                self._large[len(self.floats)] = value
                value = None
            self.floats.append(nan if value is None else value)

    def append(self, more: Numbers) -> None:
        """Appends the values of more ends."""
        self._large.update({len(self.floats) + row: value for row, value in more._large.items()})
        self.has_whole |= more.has_whole
        self.floats.extend(more.floats)
        self._kinds.extend(more._kinds)

    def take(self, rows: Sequence[int]) -> None:
        """Keeps these rows, in this order."""
        self._large = {place: self._large[row] for place, row in enumerate(rows) if row in self._large}
        self.floats = array("d", map(self.floats.__getitem__, rows))
        self._kinds = bytearray(map(self._kinds.__getitem__, rows))


class Ends:
    """One row per point; sorted by the points' numbers once `sort` was called."""

    def __init__(self, with_metrics: bool) -> None:
        self.with_metrics = with_metrics
        self.numbers = array("q")
        self.started, self.ended, self.seconds = array("d"), array("d"), array("d")
        """nan where not known; `seconds`: how long the last attempt took."""
        self._attempts, self._jobs, self._verdicts = array("q"), array("i"), array("i")
        self._job_names: list[str | None] = []
        self._known_verdicts: dict[tuple[Any, ...], int] = {}
        self.verdicts: list[Verdict] = []
        self.metrics: dict[str, Numbers] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    def add(
        self,
        ends: Sequence[PointEvent],
        job: str | None,
        started: Sequence[float | None],
        cancelled: Ranges,
        number: int | None = None,
    ) -> None:
        """Adds points of one array task that ended for good; no point twice.

        `started`: when their last attempts started; `cancelled`: points that their owner had cancelled; `number`: of
        the one point, where its `end` event does not have it."""
        if self.with_metrics:
            self._add_metrics([metrics_of(event.metrics, event.result, event.outcome) for event in ends])
        self._job_names.append(job)
        numbers = [event.point or 0 for event in ends] if number is None else [number]
        self.numbers.extend(numbers)
        self._jobs.extend([len(self._job_names) - 1] * len(ends))
        self._attempts.extend([_NONE if event.attempt is None else event.attempt for event in ends])
        self.started.extend([nan if time is None else time for time in started])
        self.ended.extend([nan if event.time is None else event.time for event in ends])
        self.seconds.extend(
            [
                max(self.ended[row] - self.started[row], 0.0) if event.seconds is None else event.seconds
                for row, event in enumerate(ends, len(self.seconds))
            ]
        )
        is_cancelled = [number in cancelled for number in numbers] if cancelled else [False] * len(ends)
        self._verdicts.extend(self._judged(ends, is_cancelled))

    def extend(self, more: Ends) -> None:
        """Appends the rows of `more`, which has metrics if this one has."""
        for name in more.metrics:
            if name not in self.metrics:
                self.metrics[name] = Numbers(len(self))
        for name, column in self.metrics.items():
            column.append(more.metrics[name] if name in more.metrics else Numbers(len(more)))
        jobs = len(self._job_names)
        self._job_names += more._job_names
        self._jobs.extend([jobs + at for at in more._jobs])
        verdicts = self._numbered([verdict[1:] for verdict in more.verdicts])
        self._verdicts.extend([verdicts[at] for at in more._verdicts])
        for name in _PLAIN_COLUMNS:
            getattr(self, name).extend(getattr(more, name))

    def _judged(self, ends: Sequence[PointEvent], is_cancelled: list[bool]) -> list[int]:
        """The number of each end's verdict."""
        keys = [
            (cancelled, event.outcome, event.cause, event.error, event.reason, event.rank, event.pruned)
            for event, cancelled in zip(ends, is_cancelled, strict=True)
        ]
        return self._numbered(keys)

    def _numbered(self, keys: list[tuple[Any, ...]]) -> list[int]:
        numbers_by_key = self._known_verdicts
        return [numbers_by_key[key] if key in numbers_by_key else self._new(key) for key in keys]

    def _new(self, key: tuple[Any, ...]) -> int:
        verdict = Verdict("", *key)
        self.verdicts.append(verdict._replace(state=state_at_end(verdict.as_end(), verdict.cancelled)[0]))
        if len(self.verdicts) <= _MOST_SHARED:
            self._known_verdicts[key] = len(self.verdicts) - 1
        return len(self.verdicts) - 1

    def _add_metrics(self, metrics: list[dict[str, float]]) -> None:
        for name in dict.fromkeys(chain.from_iterable(metrics)):
            if name not in self.metrics:
                self.metrics[name] = Numbers(len(self))
        for name, column in self.metrics.items():
            column.extend([item.get(name) for item in metrics])

    def sort(self) -> None:
        """Sorts by number. Of several rows of one point, which a search can have, keeps that of the latest attempt."""
        numbers = self.numbers
        if all(first < second for first, second in pairwise(numbers)):
            return
        order = sorted(range(len(numbers)), key=self._attempts.__getitem__)
        order.sort(key=numbers.__getitem__)
        self._take(
            [row for row, following in pairwise([*order, _NONE]) if following < 0 or numbers[row] != numbers[following]]
        )

    def drop(self, points: Ranges) -> None:
        """Removes these points."""
        dropped = {row for first, last in points.spans for row in range(*self._between(first, last))}
        if dropped:
            self._take([row for row in range(len(self)) if row not in dropped])

    def _take(self, rows: Sequence[int]) -> None:
        for name in (*_PLAIN_COLUMNS, "_jobs", "_verdicts"):
            column = getattr(self, name)
            setattr(self, name, array(column.typecode, map(column.__getitem__, rows)))
        for metric in self.metrics.values():
            metric.take(rows)

    # ---- queries -----------------------------------------------------------------------------------------------------

    def row(self, number: int) -> int | None:
        """The row of a point; None where it has none."""
        at = bisect_left(self.numbers, number)
        return at if at < len(self) and self.numbers[at] == number else None

    def rows(self, among: Ranges | None = None) -> Iterable[int]:
        """All rows, or those of the points in `among`."""
        if among is None:
            return range(len(self))
        return (row for first, last in among.spans for row in range(*self._between(first, last)))

    def _between(self, first: int, last: int) -> tuple[int, int]:
        return bisect_left(self.numbers, first), bisect_left(self.numbers, last + 1)

    def counts(self, among: Ranges | None = None) -> Counter[str]:
        """State → how many points are in it."""
        counts: Counter[str] = Counter()
        of_verdicts = Counter(self._verdicts if among is None else map(self._verdicts.__getitem__, self.rows(among)))
        for at, count in of_verdicts.items():
            counts[self.verdicts[at].state] += count
        return counts

    def where(self, matches: Callable[[Verdict], bool], among: Ranges | None = None) -> Iterator[int]:
        """The rows whose verdict `matches`."""
        is_match = bytes(map(matches, self.verdicts))
        verdicts = self._verdicts
        return (row for row in self.rows(among) if is_match[verdicts[row]])

    def verdict(self, row: int) -> Verdict:
        return self.verdicts[self._verdicts[row]]

    def attempt(self, row: int) -> int | None:
        attempt = self._attempts[row]
        return None if attempt == _NONE else attempt

    def job(self, row: int) -> str | None:
        """The array task that the point ran in last."""
        return self._job_names[self._jobs[row]]

    def metrics_of(self, row: int) -> dict[str, float]:
        """Name → value."""
        metrics = {}
        for name, column in self.metrics.items():
            value: float | None = column.floats[row]
            if column.has_whole or value != value:
                value = column[row]
            if value is not None:
                metrics[name] = value
        return metrics


def metrics_of(reported: Any, result: Any, outcome: str | None) -> dict[str, float]:
    """The metrics of an end: those `reported` last to `progress`, and those that the function returned, which win."""
    parts = [reported if isinstance(reported, dict) else {}]
    if isinstance(result, dict):
        parts.append(result)
    elif result is not None and outcome == FINISHED:
        parts.append({RESULT: result})
    metrics: dict[str, float] = {}
    for part in parts:
        metrics.update(part if set(map(type, part.values())) <= _PLAIN else _numbers(part))
    return metrics


def _numbers(pairs: dict[Any, Any]) -> dict[str, float]:
    return {str(name): value for name, value in pairs.items() if type(value) in _PLAIN}
