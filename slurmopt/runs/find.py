"""Finds the run that the argument RUN names: a name, NAME/ID, an ID or the start of one, a folder, a Slurm job id, or
nothing.

A sweep is named in the same ways, its points by their numbers after that: SWEEP/17, SWEEP/3-9, SWEEP/3,7.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slurmopt.config.check import did_you_mean
from slurmopt.errors import ConfigError, RunError, RunNotFound, one_line
from slurmopt.grid import submissions
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.records import Records, lost, readable
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import read_start
from slurmopt.run_folder.json_values import text
from slurmopt.run_folder.layout import RunFolder, folder_name
from slurmopt.run_folder.sweep_layout import SweepFolder, is_sweep, point_number, sweep_of
from slurmopt.runs import journal
from slurmopt.runs.all_runs import all_folders, created, is_run_folder, latest, runs_of_name, shown_path
from slurmopt.runs.elsewhere import first_own, other_folders
from slurmopt.runs.journal import point_count
from slurmopt.runs.options import DefaultFolder
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.unreadable_folders import refuse_unreadable

_POINTS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_JOB = re.compile(r"\d+(_\d+)?|local-\d+(_\d+)?")
_FIRST_LINE = 4096
_START_OF_ID = 6
"""Digits from which a number that no point has may be the start of an ID, which begins with a date."""


@dataclass(frozen=True)
class Selection:
    """A sweep, or some of its points."""

    sweep: SweepFolder
    points: Ranges | None = None
    """None: the sweep as a whole."""

    @property
    def label(self) -> str:
        """NAME/ID, or NAME/ID/3-9."""
        points = "" if self.points is None else f"/{self.points}"
        return one_line(f"{self.sweep.name}/{self.sweep.id}{points}")

    @property
    def point(self) -> int | None:
        """The number of the point, where exactly one is selected."""
        return self.points[0] if self.points is not None and len(self.points) == 1 else None


def find(name: str | None, folder: Path) -> RunFolder:
    """The run, or the started point of a sweep, that `name` names. Raises RunError that says what would be valid.

    Tried in this order: nothing (the latest run), NAME/ID, a name (its latest run), a folder, a point, an ID, a job id,
    the start of an ID.
    """
    selected = select(name, folder)
    if isinstance(selected, RunFolder):
        return selected
    if selected.point is None:
        subject = "is a sweep" if selected.points is None else f"are {len(selected.points)} points"
        example = f"{selected.sweep.name}/{selected.sweep.id}/{selected.points[0] if selected.points else 0}"
        raise RunError(f"{selected.label} {subject}; name one point, such as {one_line(example)}")
    return started_point(selected)


def started_point(selection: Selection) -> RunFolder:
    """The selected point as a run. RunError where it has not started yet, or its records are lost."""
    assert selection.point is not None
    point = readable(selection.sweep.point(selection.point))
    if not is_run_folder(point.kept):
        if (damaged := lost(selection.sweep, selection.point)) is not None:
            label = one_line(f"{selection.sweep.name}/{selection.sweep.id}")
            raise RunError(
                f"{selection.label} has started, and its record in {one_line(str(damaged))} is damaged or gone; "
                f"slurmopt status {shlex.quote(label)} says how it ended"
            )
        why = f"slurmopt status {shlex.quote(selection.label)} says why"
        raise RunError(f"{selection.label} has not started yet; {why}")
    return point


def select(name: str | None, folder: Path) -> RunFolder | Selection:
    """Like `find`, but also accepts sweeps, several points of one, and points that have not started.

    Where `folder` is the default one and has no such run, this user's own runs in the other known folders are searched,
    and where one is found, standard error says where.
    """
    try:
        return _select(name, folder)
    except RunNotFound as error:
        if not isinstance(folder, DefaultFolder):
            raise
        if (
            name is not None
            and (found := first_own(folder, lambda other: _select(name, other), top_folder)) is not None
        ):
            return found
        hint = "; `slurmopt list --everywhere` shows those in your other folders" if other_folders(folder) else ""
        raise RunNotFound(f"{error}{hint}") from error


def top_folder(found: RunFolder | Selection) -> RunFolder:
    """The folder of the run or the sweep."""
    return found if isinstance(found, RunFolder) else found.sweep.run


def _select(name: str | None, folder: Path) -> RunFolder | Selection:
    if name is None:
        if not (runs := all_folders(folder)):
            refuse_unreadable(None, [], folder)
        return _as_selection(latest(runs, f"no runs in {shown_path(folder)}"))
    if not name or "\0" in name:
        raise RunError(f"{name!r} names no run; valid: a name, NAME/ID, an ID, a folder, a job id, SWEEP/POINT")
    if (run := _by_path(name, folder)) is not None:
        return _as_selection(run)
    if (points := _by_points(name, folder)) is not None:
        return points
    if (run := _by_id(name, folder)) is not None:
        return _as_selection(run)
    return by_job(name, folder) or _as_selection(_by_prefix(name, folder))


def _as_selection(run: RunFolder) -> RunFolder | Selection:
    """`run`, or where it is a sweep's or a point's folder, the Selection."""
    if is_sweep(run.path):
        return Selection(SweepFolder(run.path))
    number, sweep = point_number(run), sweep_of(run)
    return run if number is None or sweep is None else Selection(sweep, Ranges.of([number]))


def _by_path(name: str, folder: Path) -> RunFolder | None:
    for path in _paths(name, folder):
        if (point := _point_at(path)) is not None:
            return point
        if is_run_folder(path):
            return RunFolder(_normalized(path))
        if runs := runs_of_name(_normalized(path)):
            return latest(runs, "")
    return _by_typed_name(name, folder)


def _normalized(path: Path) -> Path:
    """`path` without `..`. Links are kept, unless a `..` follows one."""
    short, real = os.path.abspath(path), os.path.realpath(path)
    return Path(short if os.path.realpath(short) == real else real)


def _point_at(path: Path) -> RunFolder | None:
    """The point whose folder, link or record folder of its array task `path` is; else None."""
    path = Path(os.path.abspath(path.parent / os.readlink(path) if os.path.islink(path) else path))
    if path.parents[2:] and path.parents[2].name == "tasks":
        path = path.parents[3] / path.parent.name / path.name
    run = RunFolder(path)
    number, sweep = point_number(run), sweep_of(run)
    exists = (
        number is not None and sweep is not None and (os.path.isdir(path) or Records(sweep).latest(number) is not None)
    )
    return run if exists else None


def _by_typed_name(name: str, folder: Path) -> RunFolder | None:
    """The latest run that was launched as `name`, from which its folder's name was made."""
    runs = [run for run in runs_of_name(folder.absolute() / folder_name(name)) if _typed_name(run) == name]
    return latest(runs, "") if runs else None


def _typed_name(run: RunFolder) -> str | None:
    try:
        first_events = list(events.parse(read_start(run.events, _FIRST_LINE).splitlines()))
    except OSError:
        return None
    return next((text(event.get("name")) for event in reversed(first_events) if event["event"] == "created"), None)


def _paths(name: str, folder: Path) -> Iterator[Path]:
    """The paths that `name` may be: first as NAME or NAME/ID in `folder`, then as a path."""
    if not name.startswith(("/", ".")):
        yield folder.absolute() / name.strip("/")
    yield Path(name).absolute()


def _by_points(name: str, folder: Path) -> Selection | None:
    """The selection of SWEEP/3-9; None where SWEEP is not a sweep, RunError where it has no such points."""
    head, _, last = name.rstrip("/").rpartition("/")
    if not head or not _POINTS.fullmatch(last):
        return None
    try:
        selection = _select(head, folder)
    except RunError:
        return None
    if not isinstance(selection, Selection) or selection.points is not None:
        return None
    try:
        return _checked(selection.sweep, Ranges.parse(last))
    except (ValueError, RunError) as error:
        if len(last) >= _START_OF_ID and any(
            run.name == head and run.id.startswith(last) for run in all_folders(folder)
        ):
            return None
        raise RunError(f"{one_line(name)!r}: {error}") from error


def _checked(sweep: SweepFolder, points: Ranges) -> Selection:
    count = point_count(sweep)
    if count and points.spans[-1][1] >= count:
        label = one_line(f"{sweep.name}/{sweep.id}")
        raise RunError(f"{label} has no point {max(points.spans[-1][0], count)}; valid: 0 to {count - 1}")
    return Selection(sweep, points)


def _by_id(run_id: str, folder: Path) -> RunFolder | None:
    matches = [run for run in all_folders(folder) if run.id == run_id]
    if len(matches) > 1:
        raise _ambiguous(run_id, matches)
    return matches[0] if matches else None


def by_job(job_id: str, folder: Path) -> RunFolder | Selection | None:
    """The latest run, sweep or points with that Slurm job id, of this user's own first; None where there is none.

    Job ids and process ids are used again, so the latest counts. Anybody may write any job id into a journal of theirs.
    """
    if not _JOB.fullmatch(job_id):
        return None
    latest_first = sorted(all_folders(folder), key=created, reverse=True)
    for run in sorted(latest_first, key=lambda run: owner_of(run) is not None):
        if is_sweep(run.path):
            if (selection := _of_array(SweepFolder(run.path), job_id)) is not None:
                return selection
            continue
        jobs = journal.read(run).jobs
        if job_id in jobs or any(job.startswith(f"{job_id}_") for job in jobs):
            return run
    return None


def _of_array(sweep: SweepFolder, job: str) -> Selection | None:
    """The sweep, where `job` is one of its array jobs; its points, where `job` is an array task `A_a`."""
    array, _, task = job.partition("_")
    try:
        entries = submissions.read(sweep.sweep_file)
    except ConfigError:  # a damaged sweep must not stop the search
        return None
    for entry in reversed(entries):
        if entry.job != array:
            continue
        if not task or entry.tasks is not None:
            return Selection(sweep)
        if points := entry.points_of(int(task)):
            return Selection(sweep, points)
        last = entry.array.spans[-1][1]
        raise RunError(f"array job {array} of {sweep.name}/{sweep.id} has no task {task}; valid: 0 to {last}")
    return None


def _by_prefix(prefix: str, folder: Path) -> RunFolder:
    runs = all_folders(folder)
    name, _, start = prefix.rpartition("/")
    matches = [run for run in runs if run.id.startswith(start or prefix) and name in ("", run.name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise _ambiguous(prefix, matches)
    paths = list(_paths(prefix, folder))
    refuse_unreadable(prefix, paths, folder)
    places = [Path(os.path.abspath(path)) for path in paths if os.path.lexists(path)]
    if any(path.parent.parent == folder.absolute() for path in places):
        raise RunNotFound(f"no run {prefix!r} in {shown_path(folder)}: what is there has no events.jsonl")
    _refuse_folder(prefix)
    if not runs:
        return latest(runs, f"no runs in {shown_path(folder)}")
    valid = sorted({run.name for run in runs}) + [run.id for run in runs] + [f"{run.name}/{run.id}" for run in runs]
    raise RunNotFound(
        f"no run {prefix!r} in {shown_path(folder)}{did_you_mean(prefix, valid)}; `slurmopt list` shows all"
    )


def _refuse_folder(name: str) -> None:
    """RunError where `name` is the path of a folder that is not a run folder."""
    if ("/" in name or name in (".", "..")) and os.path.isdir(name):
        path = os.path.realpath(name)
        raise RunError(
            f"{name!r} is the folder {one_line(path)}: neither a run nor the runs of one name; "
            f"if your runs are in it, add --folder {one_line(shlex.quote(path))}"
        )


def _ambiguous(name: str, runs: list[RunFolder]) -> RunError:
    labels = [f"{run.name}/{run.id}" for run in sorted(runs, key=created, reverse=True)]
    others = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
    return RunError(f"{name!r} can be {', '.join(labels[:3])}{others}; write more characters of it")
