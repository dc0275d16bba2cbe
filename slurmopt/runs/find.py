"""Which run is meant by RUN: a name, NAME/ID, an ID or the start of one, a folder, a Slurm job id, or nothing.

A sweep is named in the same ways, and its points by a number behind that: SWEEP/17, SWEEP/3-9, SWEEP/3,7.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slurmopt.config.check import did_you_mean
from slurmopt.errors import ConfigError, RunError, one_line, why_failed
from slurmopt.grid import submissions
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.records import Records, lost, readable
from slurmopt.run_folder import events
from slurmopt.run_folder.files import read_start
from slurmopt.run_folder.json_values import text
from slurmopt.run_folder.layout import RunFolder, folder_name, is_run
from slurmopt.run_folder.sweep_layout import SweepFolder, is_sweep, point_number, sweep_of
from slurmopt.runs import journal
from slurmopt.runs.journal import point_count
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.unreadable_folders import refuse_closed

_POINTS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_JOB = re.compile(r"\d+(_\d+)?|local-\d+")
_FIRST_LINE = 4096
_START_OF_ID = 6
"""Characters from which a number that no point has may be meant as the start of an ID, which is a date."""


@dataclass(frozen=True)
class Selection:
    """A sweep, or points of it."""

    sweep: SweepFolder
    points: Ranges | None = None
    """None: the sweep as such."""

    @property
    def label(self) -> str:
        """NAME/ID, or NAME/ID/3-9."""
        behind = "" if self.points is None else f"/{self.points}"
        return one_line(f"{self.sweep.name}/{self.sweep.id}{behind}")

    @property
    def point(self) -> int | None:
        """Its number where it is one point."""
        return self.points[0] if self.points is not None and len(self.points) == 1 else None


def find(word: str | None, folder: Path) -> RunFolder:
    """The run, or the started point of a sweep, that `word` means. Raises RunError saying what would be valid.

    In this order: nothing is the latest run; NAME/ID; a name is its latest run; a folder; a point; an ID; a job id;
    the start of an ID.
    """
    found = pick(word, folder)
    if isinstance(found, RunFolder):
        return found
    if found.point is None:
        what = "is a sweep" if found.points is None else f"are {len(found.points)} points"
        name = f"{found.sweep.name}/{found.sweep.id}/{found.points[0] if found.points else 0}"
        raise RunError(f"{found.label} {what}; name one point, such as {one_line(name)}")
    return started(found)


def started(found: Selection) -> RunFolder:
    """The one point as a run. RunError where it has not started yet, or its records are lost."""
    assert found.point is not None
    point = readable(found.sweep.point(found.point))
    if not _is_run(point.kept):
        if (damaged := lost(found.sweep, found.point)) is not None:
            label = one_line(f"{found.sweep.name}/{found.sweep.id}")
            raise RunError(
                f"{found.label} has started, and its record in {one_line(str(damaged))} is damaged or gone; "
                f"slurmopt status {label} says how it ended"
            )
        raise RunError(f"{found.label} has not started yet; slurmopt status {found.label} says why")
    return point


def pick(word: str | None, folder: Path) -> RunFolder | Selection:
    """As `find`, but a sweep too, and several points of one, and points that have not started."""
    if word is None:
        if not (runs := _all(folder)):
            refuse_closed(None, [], folder)
        return _meant(latest(runs, f"no runs in {_shown(folder)}"))
    if not word or "\0" in word:
        raise RunError(f"{word!r} names no run; valid: a name, NAME/ID, an ID, a folder, a job id, SWEEP/POINT")
    if (found := _by_path(word, folder)) is not None:
        return _meant(found)
    if (points := _by_points(word, folder)) is not None:
        return points
    if (found := _by_id(word, folder)) is not None:
        return _meant(found)
    return _by_job(word, folder) or _meant(_by_prefix(word, folder))


def _meant(run: RunFolder) -> RunFolder | Selection:
    """`run`, which may be a sweep's folder or a point's."""
    if is_sweep(run.path):
        return Selection(SweepFolder(run.path))
    number, sweep = point_number(run), sweep_of(run)
    return run if number is None or sweep is None else Selection(sweep, Ranges.of([number]))


def all_runs(folder: Path) -> list[RunFolder]:
    """Every run in `folder`, in no order. Other folders that lie there, and what others keep private, are left out;
    so are sweeps."""
    return [run for run in _all(folder) if not is_sweep(run.path)]


def all_sweeps(folder: Path) -> list[SweepFolder]:
    """Every sweep in `folder`, in no order."""
    return [SweepFolder(run.path) for run in _all(folder) if is_sweep(run.path)]


def _all(folder: Path) -> list[RunFolder]:
    """Runs, and sweeps in the shape of runs."""
    base = folder.absolute()
    try:
        names = _folders(base)
    except OSError as error:
        refuse_closed(None, [base], base)
        raise RunError(f"cannot read {_shown(folder)}: {why_failed(error)}") from error
    return [run for name in names for run in _runs_of(base / name)]


def _runs_of(name_folder: Path) -> list[RunFolder]:
    try:
        paths = [name_folder / name for name in _folders(name_folder)]
    except OSError:
        return []
    return [RunFolder(path) for path in paths if _is_run(path)]


def _is_run(path: Path) -> bool:
    try:
        return is_run(path)
    except OSError:
        return False


def _folders(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if not entry.name.startswith(".") and _is_folder(entry)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def latest(runs: list[RunFolder], otherwise: str) -> RunFolder:
    """The run made last, of one's own where there are some; RunError(`otherwise`) where there is none.

    In a folder that others may write, a newer one of theirs is not taken for what one has launched."""
    if not runs:
        raise RunError(f"{otherwise}; start one with `slurmopt launch`, or name the folder of your runs with --folder")
    return max([run for run in runs if owner_of(run) is None] or runs, key=created)


def created(run: RunFolder) -> tuple[float, str]:
    """What runs are ordered by: when the launch made it, then its ID."""
    try:
        first = read_start(run.events, _FIRST_LINE).split(b"\n", 1)[0]
    except OSError:  # not readable: it counts as the oldest, and its status says why
        return 0.0, run.id
    match = re.search(rb'"time": *(\d{1,15}(?:\.\d{1,9})?)[,}]', first)
    return float(match[1]) if match else 0.0, run.id


def _by_path(word: str, folder: Path) -> RunFolder | None:
    for path in _paths(word, folder):
        if (point := _point_at(path)) is not None:
            return point
        if _is_run(path):
            return RunFolder(_plain(path))
        if runs := _runs_of(_plain(path)):
            return latest(runs, "")
    return _by_typed_name(word, folder)


def _plain(path: Path) -> Path:
    """The same folder without `..`: links stay as they were typed, unless a `..` follows one."""
    short, real = os.path.abspath(path), os.path.realpath(path)
    return Path(short if os.path.realpath(short) == real else real)


def _point_at(path: Path) -> RunFolder | None:
    """A point by its folder, by the link to it, or by the folder in which its array task keeps its records."""
    path = Path(os.path.abspath(path.parent / os.readlink(path) if os.path.islink(path) else path))
    if path.parents[2:] and path.parents[2].name == "tasks":
        path = path.parents[3] / path.parent.name / path.name
    run = RunFolder(path)
    number, sweep = point_number(run), sweep_of(run)
    known = (
        number is not None and sweep is not None and (os.path.isdir(path) or Records(sweep).latest(number) is not None)
    )
    return run if known else None


def _by_typed_name(word: str, folder: Path) -> RunFolder | None:
    """The latest run whose name was `word` before it became a folder's."""
    runs = [run for run in _runs_of(folder.absolute() / folder_name(word)) if _typed_name(run) == word]
    return latest(runs, "") if runs else None


def _typed_name(run: RunFolder) -> str | None:
    try:
        told = list(events.parse(read_start(run.events, _FIRST_LINE).splitlines()))
    except OSError:
        return None
    return next((text(event.get("name")) for event in reversed(told) if event["event"] == "created"), None)


def _paths(word: str, folder: Path) -> Iterator[Path]:
    """A name, or NAME/ID, then any path."""
    if not word.startswith(("/", ".")):
        yield folder.absolute() / word.strip("/")
    yield Path(word).absolute()


def _by_points(word: str, folder: Path) -> Selection | None:
    """Of SWEEP/3-9: where SWEEP is a sweep. RunError where it has no such points."""
    head, _, last = word.rstrip("/").rpartition("/")
    if not head or not _POINTS.fullmatch(last):
        return None
    try:
        found = pick(head, folder)
    except RunError:
        return None
    if not isinstance(found, Selection) or found.points is not None:
        return None
    try:
        return _within(found.sweep, Ranges.parse(last))
    except (ValueError, RunError) as error:
        if len(last) >= _START_OF_ID and any(run.name == head and run.id.startswith(last) for run in _all(folder)):
            return None
        raise RunError(f"{one_line(word)!r}: {error}") from error


def _within(sweep: SweepFolder, points: Ranges) -> Selection:
    count = point_count(sweep)
    if count and points.spans[-1][1] >= count:
        label = one_line(f"{sweep.name}/{sweep.id}")
        raise RunError(f"{label} has no point {max(points.spans[-1][0], count)}; valid: 0 to {count - 1}")
    return Selection(sweep, points)


def _by_id(word: str, folder: Path) -> RunFolder | None:
    same = [run for run in _all(folder) if run.id == word]
    if len(same) > 1:
        raise _ambiguous(word, same)
    return same[0] if same else None


def _by_job(word: str, folder: Path) -> RunFolder | Selection | None:
    if not _JOB.fullmatch(word):
        return None
    # Slurm's counter starts again one day, and process ids do so daily: the latest run is meant.
    for run in sorted(_all(folder), key=created, reverse=True):
        if is_sweep(run.path):
            if (found := _of_array(SweepFolder(run.path), word)) is not None:
                return found
            continue
        jobs = journal.read(run).jobs
        if word in jobs or any(job.startswith(f"{word}_") for job in jobs):
            return run
    return None


def _of_array(sweep: SweepFolder, job: str) -> Selection | None:
    """The sweep whose array job it is; the points of an array task `A_a`."""
    array, _, task = job.partition("_")
    try:
        tried = submissions.read(sweep.sweep_file)
    except ConfigError:  # another sweep's damage is not what was asked about
        return None
    for one in reversed(tried):
        if one.job != array:
            continue
        if not task or one.tasks is not None:
            return Selection(sweep)
        if points := one.points_of(int(task)):
            return Selection(sweep, points)
        last = one.array.spans[-1][1]
        raise RunError(f"array job {array} of {sweep.name}/{sweep.id} has no task {task}; valid: 0 to {last}")
    return None


def _by_prefix(word: str, folder: Path) -> RunFolder:
    runs = _all(folder)
    name, _, start = word.rpartition("/")
    close = [run for run in runs if run.id.startswith(start or word) and name in ("", run.name)]
    if len(close) == 1:
        return close[0]
    if close:
        raise _ambiguous(word, close)
    paths = list(_paths(word, folder))
    refuse_closed(word, paths, folder)
    places = [Path(os.path.abspath(path)) for path in paths if os.path.lexists(path)]
    if any(path.parent.parent == folder.absolute() for path in places):
        raise RunError(f"no run {word!r} in {_shown(folder)}: what is there has no events.jsonl")
    _refuse_folder(word)
    if not runs:
        return latest(runs, f"no runs in {_shown(folder)}")
    valid = sorted({run.name for run in runs}) + [run.id for run in runs] + [f"{run.name}/{run.id}" for run in runs]
    raise RunError(f"no run {word!r} in {_shown(folder)}{did_you_mean(word, valid)}; `slurmopt list` shows all")


def _refuse_folder(word: str) -> None:
    """RunError where `word` is the path of a folder that is no run's."""
    if ("/" in word or word in (".", "..")) and os.path.isdir(word):
        there = os.path.realpath(word)
        raise RunError(
            f"{word!r} is the folder {one_line(there)}: neither a run nor the runs of one name; "
            f"if your runs are in it, add --folder {one_line(shlex.quote(there))}"
        )


def _ambiguous(word: str, runs: list[RunFolder]) -> RunError:
    labels = [f"{run.name}/{run.id}" for run in sorted(runs, key=created, reverse=True)]
    more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
    return RunError(f"{word!r} can be {', '.join(labels[:3])}{more}; write more of it")


def _shown(folder: Path) -> str:
    return repr(one_line(os.path.relpath(folder) if folder.is_relative_to(Path.cwd()) else str(folder)))
