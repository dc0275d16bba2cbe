"""Finds the records of a sweep's points, which may be kept by their array tasks: see `slurmopt.run_folder.archive`.

A point may have been in several array tasks, or an array task itself: the records of its latest attempt count.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from slurmopt.errors import ConfigError
from slurmopt.grid import submissions
from slurmopt.grid.point_ranges import Ranges
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import replace_text
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.archive import LINES, Archived, TaskArchive
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder, point_number, sweep_of

_OF_AN_ATTEMPT = ("heartbeat", "logs")
"""Folders of a point's records."""
_TRIES, _PAUSE = 3, 0.1
"""How often files are read that may be archived at the same time, and the seconds between the tries."""
_YOUNG = 3.0
"""Seconds after a change in which another one could have the same time stamp."""


class Records:
    """The records of the points of one sweep. Each file is read once, and later only where it has grown."""

    def __init__(self, sweep: SweepFolder) -> None:
        self._sweep = sweep
        self._archives: dict[str, TaskArchive] = {}
        self._submissions: list[submissions.Submission] = []
        self._tasks: list[str] = []
        self._retries: list[tuple[int, Ranges, dict[str, Any]]] = []
        """Each retry: the last submission before it, its points, its event. The order of submissions tells which
        attempts were before it; the clocks of two nodes could not."""
        self._kept: dict[int, str] | None = None
        """Point → an array task that keeps its records."""
        self._seen: dict[Path, tuple[int, int, int] | None] = {}

    def latest(self, number: int) -> RunFolder | Archived | None:
        """The records of the point's latest attempt; None where it has not started. OSError where a file cannot be
        read."""
        candidates: list[tuple[tuple[int, int, bool], RunFolder | Archived]] = []
        own = self._sweep.point(number)
        if os.path.lexists(held(own.events)):
            candidates.append(((_latest_attempt(own), self._as_array_task(number), False), own))
        for name in self.tasks_of(number):
            submission = int(name.partition("-")[0])
            # The files come first: they are deleted once the archive has their line.
            run = self._sweep.packed_point(number, name)
            if os.path.lexists(held(run.events)):
                candidates.append(((_latest_attempt(run), submission, False), run))
            if (archived := self._archive(name).find(number)) is not None:
                candidates.append(((max(archived.attempts, default=-1), submission, True), archived))
        return max(candidates, key=lambda candidate: candidate[0], default=(None, None))[1]

    def created(self, number: int) -> list[dict[str, Any]]:
        """The first events of a point, which are the same in all its records. Cheaper than `journal` where many array
        tasks share the points."""
        if self._kept is None:
            self._refresh()
            self._kept = {point: name for name in self._tasks for point in self._points_of(name)}
        if (name := self._kept.get(number)) is None:
            return self.journal(number)
        journal = events.read(self._sweep.packed_point(number, name).events)
        archived = None if journal else self._archive(name).find(number)
        return journal or (self.journal(number) if archived is None else archived.journal)

    def _points_of(self, name: str) -> Iterator[int]:
        """The points whose records an array task keeps."""
        yield from self._archive(name).points()
        yield from self._sweep.packed_points(name)

    def running(self, number: int) -> RunFolder | None:
        """The records of the point where they are its own files, as while it runs; else None."""
        records = self.latest(number)
        return records if isinstance(records, RunFolder) else None

    def journal(self, number: int) -> list[dict[str, Any]]:
        """The events of a point, with its retries in the sweep's journal; empty where it has not started."""
        return self._told(number)[1]

    def _told(self, number: int) -> tuple[RunFolder | Archived | None, list[dict[str, Any]]]:
        """The records of the latest attempt, and the journal. Tries again where files are archived between the two
        reads."""
        for _ in range(_TRIES):
            records = self.latest(number)
            journal = [] if records is None else self._journal(number, records)
            if records is None or journal:
                break
            time.sleep(_PAUSE)  # a network file system caches names for seconds
        return records, journal

    def _journal(self, number: int, records: RunFolder | Archived) -> list[dict[str, Any]]:
        if isinstance(records, RunFolder):
            journal = events.read(records.events)
            task = None if records.records is None else records.records.parents[1].name
        else:
            journal, task = records.journal, records.archive.task.path.name
        if task is None or not journal:  # the point's own journal has the retries
            return journal
        self._refresh()
        own_submission = int(task.partition("-")[0])
        retries = [retry for last, points, retry in self._retries if last >= own_submission and number in points]
        return journal + [retry for retry in retries if retry not in journal]

    def inherit(self, number: int, run: RunFolder) -> None:
        """Copies the records of the point's latest attempt elsewhere to `run`, which continues it. The ranks of that
        attempt may be alive on a node that is cut off; they see that another attempt goes on. Raises OSError."""
        for attempt in range(_TRIES):
            try:
                self._inherit(number, run)
                return
            except OSError as error:  # its files were archived a moment ago
                if error.errno not in (errno.ENOENT, errno.ESTALE) or attempt == _TRIES - 1:
                    raise

    def _inherit(self, number: int, run: RunFolder) -> None:
        records, journal = self._told(number)
        if records is None or (isinstance(records, RunFolder) and records.kept == run.kept):
            return
        if _started(events.read(run.events)) > _started(journal):
            return
        mode = held(self._sweep.path).stat().st_mode & 0o750
        for folder in (run.path.parent, run.path, run.kept.parent, run.kept, run.logs, run.heartbeats):
            held(folder).mkdir(mode=mode, exist_ok=True)
        if isinstance(records, RunFolder):
            for name in _OF_AN_ATTEMPT:
                _copy_tree(held(records.kept / name), held(run.kept / name))
            if not os.path.lexists(
                held(records.events)
            ):  # it is deleted first when archived: the copy may be incomplete
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(records.events))
            last = max(records.attempts(), default=-1)
            if not any(event["event"] == "end" and event.get("attempt") == last for event in journal):
                held(records.attempt_logs(last + 1)).mkdir(
                    mode=0o750, exist_ok=True
                )  # the ranks of the old attempt look for it
        else:
            records.fill_logs(run)
        _write(journal, run)

    def _as_array_task(self, number: int) -> int:
        """The latest submission in which the point is an array task itself; -1 where there is none."""
        self._refresh()
        return max(
            (entry.number for entry in self._submissions if not entry.packed and number in entry.points), default=-1
        )

    def _archive(self, name: str) -> TaskArchive:
        if name not in self._archives:
            self._archives[name] = TaskArchive(RunFolder(self._sweep.tasks / name))
        return self._archives[name]

    def of_newer(self, number: int, submission: int) -> bool:
        """Whether an array task of a newer submission has started the point."""
        newer = [name for name in self.tasks_of(number) if int(name.partition("-")[0]) > submission]
        return any(
            os.path.lexists(held(self._sweep.packed_point(number, name).events))
            or self._archive(name).find(number) is not None
            for name in newer
        )

    def tasks_of(self, number: int) -> Iterator[str]:
        """The array tasks that may have had the point: those in sweep.json, and those that it lacks because the answer
        to their submission was lost."""
        self._refresh()
        numbers = set()
        for entry in self._submissions:
            numbers.add(entry.number)
            if entry.packed and number in entry.points:
                own_task = entry.task_of(number)
                yield from (f"{entry.number}-{task}" for task in (entry.array if own_task is None else [own_task]))
        yield from (name for name in self._tasks if int(name.partition("-")[0]) not in numbers)

    def _refresh(self) -> None:
        """Reads again what may have changed."""
        sweep = self._sweep
        if self._has_changed(sweep.sweep_file):
            try:
                self._submissions = submissions.read(sweep.sweep_file)
            except ConfigError:  # the status of the sweep reports it
                self._submissions = []
        if self._has_changed(sweep.tasks):
            self._tasks = [name for name in os.listdir(held(sweep.tasks)) if _is_task(name)]
        if self._has_changed(sweep.events):
            self._retries = list(_retries(events.read(sweep.events, "submitting", "submit-failed", "retry")))

    def _has_changed(self, path: Path) -> bool:
        try:
            facts = os.stat(held(path))
        except FileNotFoundError:
            return False
        signature = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
        changed = self._seen.get(path) != signature
        # It may change again within one tick of the file system's clock.
        self._seen[path] = None if time.time() - facts.st_mtime < _YOUNG else signature
        return changed


def _write(journal: list[dict[str, Any]], run: RunFolder) -> None:
    replace_text(run.events, "".join(f"{json.dumps(event)}\n" for event in journal))


def _started(journal: list[dict[str, Any]]) -> int:
    """The number of the latest attempt in a journal; -1 where there is none."""
    numbers = (event.get("attempt") for event in journal if event["event"] == "attempt")
    return max((number for number in numbers if isinstance(number, int)), default=-1)


def _latest_attempt(run: RunFolder) -> int:
    """The latest attempt that has written a log; an attempt elsewhere claims the next number."""
    return next((attempt for attempt in reversed(run.attempts()) if run.ranks_with_logs(attempt)), -1)


def _copy_tree(source: Path, target: Path) -> None:
    """Copies a folder, where it exists. FileNotFoundError where one of its files is deleted meanwhile."""
    if not source.is_dir():
        return
    try:
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    except shutil.Error as error:
        raise FileNotFoundError(errno.ENOENT, str(error)) from error


def _is_task(name: str) -> bool:
    submission, _, task = name.partition("-")
    return submission.isdecimal() and task.isdecimal()


def _retries(journal: list[dict[str, Any]]) -> Iterator[tuple[int, Ranges, dict[str, Any]]]:
    numbers: dict[object, int] = {}
    for event in journal:
        kind, points = event["event"], event.get("points")
        if kind == "submitting" and isinstance(number := event.get("number"), int):
            numbers[event.get("token")] = number
        elif kind == "submit-failed":
            numbers.pop(event.get("token"), None)
        elif kind == "retry" and isinstance(points, str):
            with contextlib.suppress(ValueError):  # an edited line
                yield max(numbers.values(), default=-1), Ranges.parse(points), event


@dataclass(frozen=True)
class Copy(RunFolder):
    """A temporary copy of an archived point's records as separate files; it is deleted when this process ends."""

    log: Path | None = None
    """Where the logs really are."""

    def told(self, path: Path) -> Path:
        if path == self.path and self.log is not None:
            return path if path.is_dir() else self.log.parent
        return self.log if self.log is not None and path.is_relative_to(self.logs) else path


def readable(run: RunFolder) -> RunFolder:
    """`run`, or where an array task keeps the point's records, a RunFolder with these. OSError where the files cannot
    be read."""
    number, sweep = point_number(run), sweep_of(run)
    if number is None or sweep is None or not sweep.tasks.is_dir():
        return run
    records = _records(sweep)
    latest = records.latest(number)
    if latest is None:
        return RunFolder(run.path)
    return latest if isinstance(latest, RunFolder) else _copy(run, latest, records.journal(number))


def lost(sweep: SweepFolder, number: int) -> Path | None:
    """The file that lacks the records of a point although the journal of its array task says that it has started; None
    where none does. OSError where the journal cannot be read."""
    pattern = b'"event": "point", "point": %d, ' % number
    for name in _records(sweep).tasks_of(number):
        task = RunFolder(sweep.tasks / name)
        if any(pattern in block for block in events.blocks(task.events)):
            return task.path / LINES
    return None


def _copy(run: RunFolder, archived: Archived, journal: list[dict[str, Any]]) -> Copy:
    copy = Copy(run.path, _place(run.path), archived.log)
    if _copied.get(copy) != (archived, journal):
        shutil.rmtree(copy.kept, ignore_errors=True)
        copy.kept.mkdir(mode=0o700, parents=True)
        archived.fill_logs(copy)
        replace_text(copy.config, archived.config)
        _write(journal, copy)
        _copied[copy] = (archived, journal)
    return copy


_copied: dict[Copy, tuple[Archived, list[dict[str, Any]]]] = {}


@cache
def _records(sweep: SweepFolder) -> Records:
    return Records(sweep)


@cache
def _place(path: Path) -> Path:
    return Path(_temporary().name, str(len(os.listdir(_temporary().name))), path.name)


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="slurmopt-")
