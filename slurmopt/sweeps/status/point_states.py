"""Holds the state of every point of a sweep: one of those in `slurmopt.runs.status.state`.

Points that have nothing but a state are stored as ranges: a million that wait take no more memory than one. Points that
have ended are stored in columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isnan
from typing import Any

from slurmopt.errors import one_line
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.submissions import Submission
from slurmopt.run_folder.json_values import number, text
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.status.state import ALIVE, FAILED
from slurmopt.sweeps.status.ended_points import Ends

BAD = FAILED
"""States of points that ended neither successfully nor by a cancel."""


@dataclass(slots=True)
class Point:
    """One point that has more than a state. Times are seconds since the epoch."""

    number: int
    state: str
    detail: str | None = None
    job: str | None = None
    """The array task that it ran in last, `A_a`."""
    attempt: int | None = None
    started: float | None = None
    end: dict[str, Any] | None = None
    """Its `end` event; None until it has ended for good."""

    @property
    def error(self) -> str | None:
        return text(self.end.get("error")) if self.end else None

    @property
    def cause(self) -> str | None:
        return text(self.end.get("cause")) if self.end else None

    @property
    def pruned(self) -> bool:
        """Whether its search pruned it."""
        return bool(self.end and self.end.get("pruned"))

    @property
    def ended(self) -> float | None:
        return number(self.end.get("time")) if self.end else None

    @property
    def seconds(self) -> float | None:
        """How long its last attempt took."""
        if self.end is None:
            return None
        noted = number(self.end.get("seconds"))
        if noted is not None or self.started is None or self.ended is None:
            return noted
        return max(0.0, self.ended - self.started)


@dataclass(frozen=True)
class Rest:
    """Points that are all in one state and have nothing else."""

    points: Ranges
    state: str
    detail: str | None = None


@dataclass
class SweepStates:
    """The states of a sweep's points at `now`."""

    sweep: SweepFolder
    count: int
    """How many points it has."""
    submissions: list[Submission]
    ends: Ends
    """Points that have ended for good."""
    points: dict[int, Point] = field(default_factory=dict)
    """The other points that have more than a state."""
    rest: list[Rest] = field(default_factory=list)
    created: float | None = None
    now: float = 0.0
    problem: str | None = None
    """Why Slurm could not be asked, if so."""
    withdrawn: Ranges = field(default_factory=Ranges)
    """Cancelled points that have not started and whose array tasks are still in Slurm: other points of the tasks go on,
    or the cancel broke off before scancel."""

    @property
    def label(self) -> str:
        """NAME/ID."""
        return one_line(f"{self.sweep.name}/{self.sweep.id}")

    def counts(self, among: Ranges | None = None) -> dict[str, int]:
        """State → how many points are in it."""
        counts = self.ends.counts(among) + Counter(point.state for point in self._others(among))
        for rest in self.rest:
            counts[rest.state] += len(rest.points if among is None else rest.points.intersection(among))
        return {state: counts[state] for state in counts if counts[state]}

    def known(self, among: Ranges | None = None) -> Iterator[Point]:
        """The points that have more than a state."""
        yield from map(self.ended_point, self.ends.rows(among))
        yield from self._others(among)

    def in_states(self, states: tuple[str, ...], among: Ranges | None = None) -> Iterator[Point]:
        """The known points in one of `states`."""
        yield from map(self.ended_point, self.ends.where(lambda verdict: verdict.state in states, among))
        yield from (point for point in self._others(among) if point.state in states)

    def _others(self, among: Ranges | None) -> Iterator[Point]:
        return (point for point in self.points.values() if among is None or point.number in among)

    def ended_point(self, row: int) -> Point:
        """The point in a row of `ends`."""
        ends, verdict = self.ends, self.ends.verdict(row)
        started, ended, seconds = (
            None if isnan(value) else value for value in (ends.started[row], ends.ended[row], ends.seconds[row])
        )
        end = {**verdict.as_end(), "time": ended, "seconds": seconds, "metrics": ends.metrics_of(row)}
        return Point(ends.numbers[row], verdict.state, verdict.detail, ends.job(row), ends.attempt(row), started, end)

    def rest_of(self, among: Ranges | None) -> list[Rest]:
        """The points that have only a state."""
        if among is None:
            return self.rest
        parts = [Rest(rest.points.intersection(among), rest.state, rest.detail) for rest in self.rest]
        return [rest for rest in parts if rest.points]

    def numbers(self, *states: str) -> Ranges:
        """The points in one of `states`."""
        rows = self.ends.where(lambda verdict: verdict.state in states)
        spans = Ranges.of(map(self.ends.numbers.__getitem__, rows)).spans
        spans += [span for rest in self.rest if rest.state in states for span in rest.points.spans]
        spans += [(point.number, point.number) for point in self.points.values() if point.state in states]
        return Ranges(spans)

    def of(self, point: int) -> Point:
        """One point."""
        if point in self.points:
            return self.points[point]
        if (row := self.ends.row(point)) is not None:
            return self.ended_point(row)
        rest = next((rest for rest in self.rest if point in rest.points), None)
        return Point(point, rest.state, rest.detail) if rest else Point(point, "unsubmitted")

    @property
    def state(self) -> str:
        """The state of the sweep: running or pending while a point goes on; else the worst end of its points."""
        counts = self.counts()
        if any(state in counts for state in ("running", "stopping")):
            return "running"
        if any(state in counts for state in ALIVE):
            return "pending" if set(counts) <= {"pending", "unsubmitted"} else "running"
        order = ("unknown", *FAILED, "cancelled", "finished", "unsubmitted")
        worst = next((state for state in order if state in counts), "unsubmitted")
        return "failed" if worst in BAD else worst

    @property
    def alive(self) -> bool:
        return self.state in ALIVE
