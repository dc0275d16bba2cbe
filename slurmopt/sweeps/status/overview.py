"""The status of several runs, sweeps and points together: for people, as JSON, and for --watch."""

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
from slurmopt.runs.status.view import cells as run_cells
from slurmopt.runs.status.view import page as run_page
from slurmopt.runs.text_table import table, terminal_width
from slurmopt.sweeps.status import view
from slurmopt.sweeps.status.failures import groups
from slurmopt.sweeps.status.point_states import Point, SweepStates
from slurmopt.sweeps.status.query import sweep_states, sweep_states_or_none


@dataclass
class Overview:
    """The status of the selected items, in the order of the arguments. Single points are shown as runs."""

    items: list[RunFolder | Selection]
    statuses: dict[str, Status]
    sweep_states: dict[str, SweepStates]
    problem: str | None
    details: bool

    def as_list(self) -> list[dict[str, Any]]:
        """What `--json` prints."""
        return [self._dict(item) for item in self.items]

    def _dict(self, item: RunFolder | Selection) -> dict[str, Any]:
        status = self.status_of(item)
        if status is not None:
            return as_dict(status, details=self.details)
        assert isinstance(item, Selection)
        return sweep_dict(self.sweep_states[str(item.sweep.path)], item.points)

    def status_of(self, item: RunFolder | Selection) -> Status | None:
        """The status of a run or a single point; None for a sweep or several points."""
        return self.statuses.get(_path(item))

    def text(self, coloured: bool = False) -> str:
        """For people: the page of one item, or a table of several."""
        if len(self.items) != 1:
            return table(HEADER, [self._cells(item) for item in self.items], terminal_width(), coloured)
        (item,) = self.items
        if isinstance(item, RunFolder):
            return run_page(self.statuses[_path(item)], coloured)
        states = self.sweep_states[str(item.sweep.path)]
        if item.points is None:
            return view.page(states, coloured)
        if item.point is None:
            return view.points_table(states, item.points, terminal_width(), coloured)
        status = self.statuses[_path(item)]
        return run_page(status, coloured) if status.journal.created else view.unstarted_page(states, item.point)

    def _cells(self, item: RunFolder | Selection) -> list[str]:
        status = self.status_of(item)
        if status is not None:
            return run_cells(status)
        assert isinstance(item, Selection)
        states = self.sweep_states[str(item.sweep.path)]
        return view.cells(states) if item.points is None else view.cells_of_points(states, item.points)

    @property
    def jobs(self) -> list[tuple[RunFolder, list[str | None]]]:
        """The folders of the sweeps and runs, with their known jobs."""
        of_sweeps = [
            (states.sweep.run, [entry.job for entry in states.submissions]) for states in self.sweep_states.values()
        ]
        return [*of_sweeps, *[(status.folder, [status.journal.job]) for status in self.statuses.values()]]

    @property
    def alive(self) -> bool:
        """Whether the state of any item can still change."""
        states = [status.state for status in self.statuses.values()]
        for item in self.items:
            if isinstance(item, Selection) and item.point is None:
                states += self.sweep_states[str(item.sweep.path)].counts(item.points)
        return any(state in (*ALIVE, "unknown") for state in states)


def _path(item: RunFolder | Selection) -> str:
    if isinstance(item, RunFolder):
        return str(item.path)
    return str(item.sweep.point(item.point).path) if item.point is not None else ""


def overview(items: list[RunFolder | Selection], details: bool = True) -> Overview:
    """Queries each sweep once, and all runs with one squeue. Of several items, sweeps that cannot be read are left
    out."""
    query = sweep_states if len(items) == 1 and details else sweep_states_or_none
    sweeps = dict.fromkeys(item.sweep for item in items if isinstance(item, Selection))
    by_sweep = {str(sweep.path): states for sweep in sweeps if (states := query(sweep)) is not None}
    items = [item for item in items if isinstance(item, RunFolder) or str(item.sweep.path) in by_sweep]
    selections = [item for item in items if isinstance(item, Selection)]
    points = [(item, item.sweep.point(item.point)) for item in selections if item.point is not None]
    folders = [item for item in items if isinstance(item, RunFolder)] + [run for _, run in points]
    statuses, problem = gather(folders, details=details) if folders else ([], None)
    by_path = {str(status.folder.path): status for status in statuses}
    for item, run in points:
        by_path[str(run.path)] = _as_point(by_path[str(run.path)], by_sweep[str(item.sweep.path)].of(item.point or 0))
    problems = [problem, *(states.problem for states in by_sweep.values())]
    return Overview(items, by_path, by_sweep, next(filter(None, problems), None), details)


def _as_point(status: Status, point: Point) -> Status:
    """`status` with the sweep's state of the point: the sweep knows submissions and cancels that the point's own
    journal does not."""
    status.state, status.detail = point.state, point.detail
    return status


def redrawn_overview(items: list[RunFolder | Selection], coloured: bool = False) -> tuple[str, list[str], bool]:
    """The overview for `slurmopt.runs.status.watch.redraw`. RunError where the folder of a single item was replaced."""
    shown = overview(items)
    if len(items) == 1 and shown.jobs:
        refuse_swapped(*shown.jobs[0])
    text = (
        shown.text(coloured)
        + (f"\n\nSlurm was not asked: {shown.problem}" if shown.problem else "")
        + remarks(shown.jobs)
    )
    return text, [text], shown.alive


def sweep_dict(states: SweepStates, points: Ranges | None = None) -> dict[str, Any]:
    """The JSON object of a sweep, or of `points` of it."""
    counts, current_pace = states.counts(points), view.pace(states)
    every = points if points is not None else Ranges([(0, states.count - 1)] if states.count else [])
    return {
        "name": states.sweep.name,
        "id": states.sweep.id,
        "folder": str(states.sweep.path),
        "owner": owner_of(states.sweep.run),
        "sweep": True,
        "state": states.state,
        "points": states.count,
        "selected": str(every),
        "states": counts,
        "ended": view.over(counts),
        "created": states.created,
        "points_per_minute": current_pace.per_minute,
        "eta_seconds": current_pace.left,
        "jobs": [
            {"job": entry.job, "points": str(entry.points), "per_task": entry.per_task, "packed": entry.packed}
            for entry in states.submissions
        ],
        "failures": [group.as_dict() for group in groups(states, points)],
        "each": None if points is None else [_point_dict(states.of(number)) for number in points],
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
