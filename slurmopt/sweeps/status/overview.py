"""How runs, sweeps and points are that are asked for together: for people, as JSON, and to watch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slurmopt.grid.point_ranges import Ranges
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.find import Selection
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.replaced_folders import refuse_swapped, remarks
from slurmopt.runs.status.query import Status, as_dict, gather
from slurmopt.runs.status.state import ALIVE
from slurmopt.runs.status.view import HEADER
from slurmopt.runs.status.view import cells as cells_of_run
from slurmopt.runs.status.view import page as page_of_run
from slurmopt.runs.table import table, terminal_width
from slurmopt.sweeps.status import view
from slurmopt.sweeps.status.failures import groups
from slurmopt.sweeps.status.point_states import Point, SweepStates
from slurmopt.sweeps.status.query import readable, standing


@dataclass
class Seen:
    """What was found, in the order of the words: runs and points as runs; sweeps, and several points of one."""

    found: list[RunFolder | Selection]
    statuses: dict[str, Status]
    standings: dict[str, SweepStates]
    problem: str | None
    details: bool

    def as_list(self) -> list[dict[str, Any]]:
        """What `--json` prints."""
        return [self._dict(one) for one in self.found]

    def _dict(self, one: RunFolder | Selection) -> dict[str, Any]:
        status = self._status(one)
        if status is not None:
            return as_dict(status, details=self.details)
        assert isinstance(one, Selection)
        return sweep_dict(self.standings[str(one.sweep.path)], one.points)

    def _status(self, one: RunFolder | Selection) -> Status | None:
        """As a run, if it is one."""
        return self.statuses.get(_path(one))

    def text(self) -> str:
        """For people: one page, or a line each."""
        if len(self.found) != 1:
            return table(HEADER, [self._cells(one) for one in self.found], terminal_width())
        (one,) = self.found
        if isinstance(one, RunFolder):
            return page_of_run(self.statuses[_path(one)])
        seen = self.standings[str(one.sweep.path)]
        if one.points is None:
            return view.page(seen)
        if one.point is None:
            return view.points_table(seen, one.points, terminal_width())
        status = self.statuses[_path(one)]
        return page_of_run(status) if status.journal.created else view.unstarted_page(seen, one.point)

    def _cells(self, one: RunFolder | Selection) -> list[str]:
        status = self._status(one)
        if status is not None:
            return cells_of_run(status)
        assert isinstance(one, Selection)
        seen = self.standings[str(one.sweep.path)]
        return view.cells(seen) if one.points is None else view.cells_of_points(seen, one.points)

    @property
    def jobs(self) -> list[tuple[RunFolder, list[str | None]]]:
        """The sweeps, as runs, and runs with the jobs that they are known to have."""
        of_sweeps = [(seen.sweep.run, [one.job for one in seen.submissions]) for seen in self.standings.values()]
        return [*of_sweeps, *[(status.folder, [status.journal.job]) for status in self.statuses.values()]]

    @property
    def alive(self) -> bool:
        """Whether anything of it can change."""
        words = [status.state for status in self.statuses.values()]
        for one in self.found:
            if isinstance(one, Selection) and one.point is None:
                words += self.standings[str(one.sweep.path)].counts(one.points)
        return any(word in (*ALIVE, "unknown") for word in words)


def _path(one: RunFolder | Selection) -> str:
    if isinstance(one, RunFolder):
        return str(one.path)
    return str(one.sweep.point(one.point).path) if one.point is not None else ""


def look(found: list[RunFolder | Selection], details: bool = True) -> Seen:
    """Each sweep once, all runs with one squeue. Of several, one that cannot be read is left out."""
    look = standing if len(found) == 1 and details else readable
    sweeps = dict.fromkeys(one.sweep for one in found if isinstance(one, Selection))
    standings = {str(sweep.path): seen for sweep in sweeps if (seen := look(sweep)) is not None}
    found = [one for one in found if isinstance(one, RunFolder) or str(one.sweep.path) in standings]
    chosen = [one for one in found if isinstance(one, Selection)]
    points = [(one, one.sweep.point(one.point)) for one in chosen if one.point is not None]
    folders = [one for one in found if isinstance(one, RunFolder)] + [run for _, run in points]
    statuses, problem = gather(folders, details=details) if folders else ([], None)
    by_path = {str(status.folder.path): status for status in statuses}
    for one, run in points:
        by_path[str(run.path)] = _as_point(by_path[str(run.path)], standings[str(one.sweep.path)].of(one.point or 0))
    problems = [problem, *(seen.problem for seen in standings.values())]
    return Seen(found, by_path, standings, next(filter(None, problems), None), details)


def _as_point(status: Status, point: Point) -> Status:
    """The sweep knows of submissions and cancels that the point's own journal does not."""
    status.state, status.detail = point.state, point.detail
    return status


def drawn(found: list[RunFolder | Selection]) -> tuple[str, list[str], bool]:
    """For `slurmopt.runs.status.watch.redraw`. RunError where the folder of a single one was replaced."""
    seen = look(found)
    if len(found) == 1 and seen.jobs:
        refuse_swapped(*seen.jobs[0])
    text = seen.text() + (f"\n\nSlurm was not asked: {seen.problem}" if seen.problem else "") + remarks(seen.jobs)
    return text, [text], seen.alive


def sweep_dict(seen: SweepStates, points: Ranges | None = None) -> dict[str, Any]:
    """A sweep, or `points` of it, as `--json` prints it."""
    counts, speed = seen.counts(points), view.pace(seen)
    every = points if points is not None else Ranges([(0, seen.count - 1)] if seen.count else [])
    return {
        "name": seen.sweep.name,
        "id": seen.sweep.id,
        "folder": str(seen.sweep.path),
        "owner": owner_of(seen.sweep.run),
        "sweep": True,
        "state": seen.state,
        "points": seen.count,
        "selected": str(every),
        "states": counts,
        "ended": view.over(counts),
        "created": seen.created,
        "points_per_minute": speed.per_minute,
        "eta_seconds": speed.left,
        "jobs": [
            {"job": one.job, "points": str(one.points), "per_task": one.per_task, "packed": one.packed}
            for one in seen.submissions
        ],
        "failures": [
            {
                "cause": group.cause,
                "error": group.error,
                "count": len(group.points),
                "points": str(group.points),
                "example": group.example,
            }
            for group in groups(seen, points)
        ],
        "each": None if points is None else [_point_dict(seen.of(number)) for number in points],
    }


def _point_dict(point: Point) -> dict[str, Any]:
    return {
        "number": point.number,
        "state": point.state,
        "detail": point.detail,
        "attempt": point.attempt,
        "started": point.started,
        "ended": point.ended,
        "seconds": point.seconds,
    }
