"""A sweep as a Python object: many runs from one launch."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmopt.api import html
from slurmopt.api.hydra_state import alone
from slurmopt.api.overrides import Overrides
from slurmopt.api.plain_errors import plain_errors
from slurmopt.api.run import Run
from slurmopt.api.wait import wait_until, wait_until_async
from slurmopt.api.watch import watch
from slurmopt.errors import RunError, SlurmoptError, labelled, one_line
from slurmopt.grid.point_ranges import Ranges
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.find import Selection
from slurmopt.runs.journal import point_count
from slurmopt.runs.status.state import ALIVE, FAILED
from slurmopt.sweeps.results import outcomes
from slurmopt.sweeps.results.outcomes import Row
from slurmopt.sweeps.results.ranking import Ranking, rank
from slurmopt.sweeps.status import view
from slurmopt.sweeps.status.point_states import SweepStates
from slurmopt.sweeps.status.query import sweep_states


@dataclass(frozen=True, kw_only=True)
class SweepStatus:
    """The status of a sweep at one moment."""

    state: str
    """`running` or `pending` while a point goes on; then the worst end of its points."""
    states: dict[str, int]
    """State of a point → how many points are in it."""
    points: int
    """How many points there are."""
    ended: int
    failed: int
    """Points that failed, were killed, or are lost."""
    points_per_minute: float | None
    eta_seconds: float | None
    problem: str | None
    """Why Slurm could not be asked, if so."""

    @property
    def alive(self) -> bool:
        """Whether a point waits or goes on."""
        return any(state in ALIVE for state in self.states)

    @property
    def done(self) -> bool:
        """Whether all points have ended."""
        return not self.alive and "unknown" not in self.states


@dataclass(frozen=True, kw_only=True)
class Point:
    """A point that has started, with its values on the axes."""

    number: int
    state: str
    values: dict[str, Any]
    """Key → value."""
    metrics: dict[str, float]
    """The last value of each metric, and the numbers that the function returned."""
    seconds: float | None
    attempt: int | None
    error: str | None
    pruned: bool
    """Whether a search gave it up."""


class Sweep:
    """A sweep that was submitted, or some points of it. `sweep[3]` is a point as a `Run`; `for run in sweep` goes
    through all of them. `await sweep` waits for all points, and returns their results."""

    def __init__(self, sweep: SweepFolder, points: Ranges | None = None) -> None:
        self._sweep, self._selected = sweep, points

    @property
    def _selection(self) -> Selection:
        return Selection(self._sweep, self._selected)

    @property
    def folder(self) -> Path:
        return self._sweep.path

    @property
    def name(self) -> str:
        return self._sweep.name

    @property
    def id(self) -> str:
        return self._sweep.id

    @property
    def label(self) -> str:
        """NAME/ID: what every command takes for SWEEP."""
        return self._selection.label

    @property
    def job_ids(self) -> list[str]:
        """The array jobs, so far."""
        return [str(entry.job) for entry in self._states().submissions if entry.job is not None]

    def _numbers(self) -> Ranges:
        if self._selected is not None:
            return self._selected
        count = point_count(self._sweep)
        return Ranges([(0, count - 1)] if count else [])

    def __len__(self) -> int:
        """How many points there are."""
        return len(self._numbers())

    def __getitem__(self, number: int) -> Run:
        """The point with this number. Raises IndexError."""
        if not isinstance(number, int) or number not in self._numbers():
            raise IndexError(f"{self.label} has no point {number!r}; valid: {self._numbers()}")
        return Run(Selection(self._sweep, Ranges.of([number])))

    def __iter__(self) -> Iterator[Run]:
        for number in self._numbers():
            yield self[number]

    def _states(self, metrics: bool = False) -> SweepStates:
        if not os.path.isdir(self.folder):
            raise RunError(f"{self.label} is gone: there is no folder {one_line(str(self.folder))}")
        return sweep_states(self._sweep, metrics=metrics)

    @property
    def status(self) -> SweepStatus:
        """How many points are in which state. Raises RunError where the folder is gone."""
        return self._status_of(self._states())

    def _status_of(self, states: SweepStates) -> SweepStatus:
        counts, pace = states.counts(self._selected), view.pace(states)
        return SweepStatus(
            state=states.state,
            states=counts,
            points=len(self),
            ended=view.over(counts),
            failed=sum(counts.get(state, 0) for state in FAILED),
            points_per_minute=pace.per_minute,
            eta_seconds=pace.left,
            problem=states.problem,
        )

    @property
    def done(self) -> bool:
        """Whether all points have ended."""
        return self.status.done

    @plain_errors
    def wait(self, timeout: float | None = None) -> SweepStatus:
        """Waits until all points have ended, well or not, and returns the last status. Raises TimeoutError after
        `timeout` seconds; the sweep goes on then."""
        return wait_until(lambda: self.status, lambda status: status.done, timeout, self.label)

    async def wait_async(self, timeout: float | None = None) -> SweepStatus:
        """`wait` for asyncio: other tasks go on meanwhile."""
        return await wait_until_async(lambda: self.status, lambda status: status.done, timeout, self.label)

    def __await__(self) -> Generator[Any, None, list[dict[str, Any]]]:
        return self._results_async().__await__()

    async def _results_async(self) -> list[dict[str, Any]]:
        await self.wait_async()
        return self.results()

    @property
    def points(self) -> list[Point]:
        """The points that have started, in the order of their numbers."""
        table = outcomes.table(self._states(metrics=True), self._selected)
        return [_point(row) for row in table.rows(table.places)]

    def results(self) -> list[dict[str, Any]]:
        """A dict for each point that has started, made for `pandas.DataFrame(sweep.results())`: `point`, its values by
        their keys, its metrics by their names, `state`, `seconds`, `attempt`, `error`. It does not wait. A metric that
        has the name of another column is `metrics.NAME`."""
        return [_flat(point) for point in self.points]

    @plain_errors
    def best(self, metric: str | None = None, maximize: bool = False) -> Point | None:
        """The finished point with the smallest value of `metric`, or the largest. By default the metric and direction
        of the config (`sweep.metric`, `sweep.direction`), or the only metric. None where no point has it yet. Raises
        RunError where it is no metric of any point, or none is given and there are several."""
        ranking = self._ranking(metric, maximize)
        if ranking.metric is None and ranking.table.metrics:
            few = ", ".join(map(repr, ranking.table.metrics[:12]))
            raise RunError(one_line(f"{self.label} has several metrics; name one of {few}"))
        best = ranking.best
        return None if best is None else _point(best)

    def _ranking(self, metric: str | None, maximize: bool) -> Ranking:
        return rank(outcomes.table(self._states(metrics=True), self._selected), metric, maximize)

    @plain_errors
    def logs(self) -> str:
        """The failures, each kind once with its traceback. The log of a point: `sweep[3].logs()`."""
        from slurmopt.commands.logs import errors_of_sweep

        return errors_of_sweep(self._selection)

    @plain_errors
    def cancel(self) -> bool:
        """Stops the points that have not ended, and waits up to ten seconds. False where all had ended before. Raises
        RunError for another user's sweep, SlurmError where Slurm does not answer."""
        from slurmopt.sweeps.cancel import cancel

        if not set(self.status.states).intersection((*ALIVE, "unknown", "unsubmitted")):
            return False
        cancel(self._selection)
        return True

    @plain_errors
    def retry(
        self, *overrides: str, more_memory: float | None = None, more_time: float | None = None, **keys: Any
    ) -> Sweep:
        """Submits the points that failed, were killed, lost or cancelled again, each from its last checkpoint, and
        returns the sweep. See `Run.retry`."""
        from slurmopt.launching.retry import retry_points
        from slurmopt.runs.recovery.changed_config import More

        words = [*overrides, *Overrides([], adds=False).of_items(keys.items())]
        with alone():
            retry_points(self._selection, words, More(more_memory, more_time))
        return self

    def watch(self) -> None:
        """Shows the sweep until it has ended: in a notebook in place, elsewhere a line for each change. Ctrl-C ends the
        watching, not the sweep."""
        watch(self, lambda: self.done)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sweep) and other._selection == self._selection

    def __hash__(self) -> int:
        return hash(self.folder)

    def __repr__(self) -> str:
        """One line: the sweep and how many points are in which state."""
        try:
            return f"<Sweep {self.label}: {view.state_counts(self.status.states)}>"
        except (SlurmoptError, OSError) as error:
            return f"<Sweep {labelled(self.label, one_line(str(error)))}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        try:
            ranking = self._ranking(None, False)
            return html.sweep_page(ranking, self._selected)
        except (SlurmoptError, OSError) as error:
            return html.line(labelled(self.label, str(error)))


def _point(row: Row) -> Point:
    return Point(
        number=row.point,
        state=row.state,
        values=row.values,
        metrics=row.metrics,
        seconds=row.seconds,
        attempt=row.attempt,
        error=row.error,
        pruned=row.pruned,
    )


def _flat(point: Point) -> dict[str, Any]:
    fixed = {"state": point.state, "seconds": point.seconds, "attempt": point.attempt, "error": point.error}
    columns = {"point": point.number, **point.values}
    for name, value in point.metrics.items():
        columns[f"metrics.{name}" if name in columns or name in fixed else name] = value
    return {**columns, **{name: value for name, value in fixed.items() if name not in point.values}}
