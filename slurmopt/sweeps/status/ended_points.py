"""The points of a sweep that have ended, in columns: a million take 50 MB, and 8 MB more for each metric."""

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
from slurmopt.runs.status.state import of_end
from slurmopt.sweeps.status.point_event import PointEvent

RESULT = "result"
"""What the metric is called where the function returned a plain number."""
_NONE = -1
_MOST_SHARED = 10_000
"""Verdicts that are looked for again: a million points may fail in a million ways."""
_PLAIN_COLUMNS = ("numbers", "started", "ended", "seconds", "_attempts")
_FLOAT, _WHOLE, _LACKING = range(3)
_EXACT = 2**53
_PLAIN = {int, float}


class Verdict(NamedTuple):
    """What many ends have in common."""

    state: str
    cancelled: bool
    outcome: str | None
    cause: str | None
    error: str | None
    reason: str | None
    rank: int | None
    pruned: bool

    def as_end(self) -> dict[str, Any]:
        """As an `end` event has it."""
        return {name: getattr(self, name) for name in ("outcome", "cause", "error", "reason", "rank", "pruned")}

    @property
    def detail(self) -> str | None:
        return of_end(self.as_end(), self.cancelled)[1]


class Numbers:
    """One metric of all ends."""

    def __init__(self, before: int) -> None:
        """`before`: how many ends did not have it."""
        self.floats = array("d", [nan]) * before
        """As floats; nan, too, where an end has none."""
        self.has_whole = False
        """Whether some are whole numbers, which stay what they are."""
        self._kinds = bytearray([_LACKING]) * before
        self._large: dict[int, int] = {}
        """Whole numbers that a float cannot hold: row → number."""

    def __getitem__(self, row: int) -> float | None:
        """None where the end does not have it."""
        kind = self._kinds[row]
        if kind == _FLOAT:
            return self.floats[row]
        if kind == _LACKING:
            return None
        return self._large[row] if row in self._large else int(self.floats[row])

    def extend(self, values: Sequence[float | None]) -> None:
        """None for an end that does not have it."""
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

    def append(self, other: Numbers) -> None:
        """The numbers of other ends, behind these."""
        self._large.update({len(self.floats) + row: value for row, value in other._large.items()})
        self.has_whole |= other.has_whole
        self.floats.extend(other.floats)
        self._kinds.extend(other._kinds)

    def take(self, rows: Sequence[int]) -> None:
        """Keeps these rows, in this order."""
        self._large = {place: self._large[row] for place, row in enumerate(rows) if row in self._large}
        self.floats = array("d", map(self.floats.__getitem__, rows))
        self._kinds = bytearray(map(self._kinds.__getitem__, rows))


class Ends:
    """A row for each point; sorted by their numbers once `sort` was called."""

    def __init__(self, with_metrics: bool) -> None:
        self.with_metrics = with_metrics
        self.numbers = array("q")
        self.started, self.ended, self.seconds = array("d"), array("d"), array("d")
        """nan where nobody knows; `seconds`: how long the last attempt took."""
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
        """Points of one array task that ended for good; none twice.

        `started`: when their last attempts began; `cancelled`: points whose end their owner had asked for; `number`: of
        one point, where its end does not name it.
        """
        if self.with_metrics:
            self._add_metrics([metrics_of(told.metrics, told.result, told.outcome) for told in ends])
        self._job_names.append(job)
        numbers = [told.point or 0 for told in ends] if number is None else [number]
        self.numbers.extend(numbers)
        self._jobs.extend([len(self._job_names) - 1] * len(ends))
        self._attempts.extend([_NONE if told.attempt is None else told.attempt for told in ends])
        self.started.extend([nan if time is None else time for time in started])
        self.ended.extend([nan if told.time is None else told.time for told in ends])
        self.seconds.extend(
            [
                max(self.ended[row] - self.started[row], 0.0) if told.seconds is None else told.seconds
                for row, told in enumerate(ends, len(self.seconds))
            ]
        )
        asked = [number in cancelled for number in numbers] if cancelled else [False] * len(ends)
        self._verdicts.extend(self._judged(ends, asked))

    def extend(self, other: Ends) -> None:
        """With the rows of `other`, which has metrics where this one has."""
        for name in other.metrics:
            if name not in self.metrics:
                self.metrics[name] = Numbers(len(self))
        for name, column in self.metrics.items():
            column.append(other.metrics[name] if name in other.metrics else Numbers(len(other)))
        jobs = len(self._job_names)
        self._job_names += other._job_names
        self._jobs.extend([jobs + at for at in other._jobs])
        verdicts = self._numbered([verdict[1:] for verdict in other.verdicts])
        self._verdicts.extend([verdicts[at] for at in other._verdicts])
        for name in _PLAIN_COLUMNS:
            getattr(self, name).extend(getattr(other, name))

    def _judged(self, ends: Sequence[PointEvent], asked: list[bool]) -> list[int]:
        """The number of each end's verdict."""
        same = [
            (gone, told.outcome, told.cause, told.error, told.reason, told.rank, told.pruned)
            for told, gone in zip(ends, asked, strict=True)
        ]
        return self._numbered(same)

    def _numbered(self, same: list[tuple[Any, ...]]) -> list[int]:
        known = self._known_verdicts
        return [known[one] if one in known else self._new(one) for one in same]

    def _new(self, same: tuple[Any, ...]) -> int:
        verdict = Verdict("", *same)
        self.verdicts.append(verdict._replace(state=of_end(verdict.as_end(), verdict.cancelled)[0]))
        if len(self.verdicts) <= _MOST_SHARED:
            self._known_verdicts[same] = len(self.verdicts) - 1
        return len(self.verdicts) - 1

    def _add_metrics(self, found: list[dict[str, float]]) -> None:
        for name in dict.fromkeys(chain.from_iterable(found)):
            if name not in self.metrics:
                self.metrics[name] = Numbers(len(self))
        for name, column in self.metrics.items():
            column.extend([one.get(name) for one in found])

    def sort(self) -> None:
        """By number. Of several rows of one point, which a search can have, that of the latest attempt stays."""
        numbers = self.numbers
        if all(one < other for one, other in pairwise(numbers)):
            return
        order = sorted(range(len(numbers)), key=self._attempts.__getitem__)
        order.sort(key=numbers.__getitem__)
        self._take([row for row, after in pairwise([*order, _NONE]) if after < 0 or numbers[row] != numbers[after]])

    def drop(self, points: Ranges) -> None:
        """Forgets these points."""
        gone = {row for first, last in points.spans for row in range(*self._between(first, last))}
        if gone:
            self._take([row for row in range(len(self)) if row not in gone])

    def _take(self, rows: Sequence[int]) -> None:
        for name in (*_PLAIN_COLUMNS, "_jobs", "_verdicts"):
            column = getattr(self, name)
            setattr(self, name, array(column.typecode, map(column.__getitem__, rows)))
        for metric in self.metrics.values():
            metric.take(rows)

    # ---- asking ------------------------------------------------------------------------------------------------------

    def row(self, number: int) -> int | None:
        """The point's row."""
        at = bisect_left(self.numbers, number)
        return at if at < len(self) and self.numbers[at] == number else None

    def rows(self, among: Ranges | None = None) -> Iterable[int]:
        """All rows, or those of some points."""
        if among is None:
            return range(len(self))
        return (row for first, last in among.spans for row in range(*self._between(first, last)))

    def _between(self, first: int, last: int) -> tuple[int, int]:
        return bisect_left(self.numbers, first), bisect_left(self.numbers, last + 1)

    def counts(self, among: Ranges | None = None) -> Counter[str]:
        """State → how many points are in it."""
        found: Counter[str] = Counter()
        of_verdicts = Counter(self._verdicts if among is None else map(self._verdicts.__getitem__, self.rows(among)))
        for at, count in of_verdicts.items():
            found[self.verdicts[at].state] += count
        return found

    def where(self, wanted: Callable[[Verdict], bool], among: Ranges | None = None) -> Iterator[int]:
        """The rows whose verdict is wanted."""
        chosen = bytes(map(wanted, self.verdicts))
        verdicts = self._verdicts
        return (row for row in self.rows(among) if chosen[verdicts[row]])

    def verdict(self, row: int) -> Verdict:
        return self.verdicts[self._verdicts[row]]

    def attempt(self, row: int) -> int | None:
        found = self._attempts[row]
        return None if found == _NONE else found

    def job(self, row: int) -> str | None:
        """The array task that the point ran in last."""
        return self._job_names[self._jobs[row]]

    def metrics_of(self, row: int) -> dict[str, float]:
        """Name → number."""
        found = {}
        for name, column in self.metrics.items():
            value: float | None = column.floats[row]
            if column.has_whole or value != value:
                value = column[row]
            if value is not None:
                found[name] = value
        return found


def metrics_of(told: Any, result: Any, outcome: str | None) -> dict[str, float]:
    """The numbers of an end: what `progress` was told last, and what the function returned, which wins."""
    parts = [told if isinstance(told, dict) else {}]
    if isinstance(result, dict):
        parts.append(result)
    elif result is not None and outcome == FINISHED:
        parts.append({RESULT: result})
    found: dict[str, float] = {}
    for part in parts:
        found.update(part if set(map(type, part.values())) <= _PLAIN else _numbers(part))
    return found


def _numbers(pairs: dict[Any, Any]) -> dict[str, float]:
    return {str(name): value for name, value in pairs.items() if type(value) in _PLAIN}
