"""Where the records of a sweep's points lie, which array tasks keep that start them: see `slurmopt.run_folder.archive`.

A point may have been in several array tasks, or an array task of its own: the account of its latest attempt counts.
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
from slurmopt.run_folder.archive import LINES, Archived, TaskArchive
from slurmopt.run_folder.files import replace_text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.open_folders import held
from slurmopt.run_folder.sweep_layout import SweepFolder, point_number, sweep_of

_OF_AN_ATTEMPT = ("heartbeat", "logs")
"""Folders of a point's records."""
_TRIES, _PAUSE = 3, 0.1
"""Looks at files that may be archived at the same time, and the seconds between them."""
_YOUNG = 3.0
"""Seconds for which a change is not the last one."""


class Records:
    """The records of the points of one sweep; each file is read once, and again as far as it grows."""

    def __init__(self, sweep: SweepFolder) -> None:
        self._sweep = sweep
        self._archives: dict[str, TaskArchive] = {}
        self._submissions: list[submissions.Submission] = []
        self._tasks: list[str] = []
        self._retries: list[tuple[int, Ranges, dict[str, Any]]] = []
        """Of each retry: the last submission before it, its points, its event. Clocks of two nodes could not tell which
        attempts were before it."""
        self._kept: dict[int, str] | None = None
        """Point → an array task that keeps records of it."""
        self._seen: dict[Path, tuple[int, int, int] | None] = {}

    def latest(self, number: int) -> RunFolder | Archived | None:
        """The records of the point's latest attempt; None where it has not started. OSError where a file cannot be
        read."""
        found: list[tuple[tuple[int, int, bool], RunFolder | Archived]] = []
        own = self._sweep.point(number)
        if os.path.lexists(held(own.events)):
            found.append(((_latest_attempt(own), self._as_array_task(number), False), own))
        for name in self.tasks_of(number):
            submission = int(name.partition("-")[0])
            # First the files: they are deleted once the line is there.
            run = self._sweep.packed_point(number, name)
            if os.path.lexists(held(run.events)):
                found.append(((_latest_attempt(run), submission, False), run))
            if (archived := self._archive(name).find(number)) is not None:
                found.append(((max(archived.attempts, default=-1), submission, True), archived))
        return max(found, key=lambda one: one[0], default=(None, None))[1]

    def created(self, number: int) -> list[dict[str, Any]]:
        """The first events of a point, which all its records have alike: cheaper than `journal` where many array tasks
        share the points."""
        if self._kept is None:
            self._look()
            self._kept = {point: name for name in self._tasks for point in self._points_of(name)}
        if (name := self._kept.get(number)) is None:
            return self.journal(number)
        journal = events.read(self._sweep.packed_point(number, name).events)
        archived = None if journal else self._archive(name).find(number)
        return journal or (self.journal(number) if archived is None else archived.journal)

    def _points_of(self, name: str) -> Iterator[int]:
        """The points of which an array task keeps records."""
        yield from self._archive(name).points()
        yield from self._sweep.packed_points(name)

    def running(self, number: int) -> RunFolder | None:
        """The records of the point where they are files of its own, as while it runs."""
        found = self.latest(number)
        return found if isinstance(found, RunFolder) else None

    def journal(self, number: int) -> list[dict[str, Any]]:
        """The events of a point, and the retries of it that the sweep's journal tells of; none where it has not
        started."""
        return self._told(number)[1]

    def _told(self, number: int) -> tuple[RunFolder | Archived | None, list[dict[str, Any]]]:
        """The records of the latest attempt, and the journal: files of their own may be archived between the two."""
        for _ in range(_TRIES):
            found = self.latest(number)
            journal = [] if found is None else self._journal(number, found)
            if found is None or journal:
                break
            time.sleep(_PAUSE)  # what a network file system remembers of names is seconds old
        return found, journal

    def _journal(self, number: int, found: RunFolder | Archived) -> list[dict[str, Any]]:
        if isinstance(found, RunFolder):
            journal = events.read(found.events)
            task = None if found.records is None else found.records.parents[1].name
        else:
            journal, task = found.journal, found.archive.task.path.name
        if task is None or not journal:  # it has noted them itself
            return journal
        self._look()
        mine = int(task.partition("-")[0])
        retries = [told for last, points, told in self._retries if last >= mine and number in points]
        return journal + [told for told in retries if told not in journal]

    def inherit(self, number: int, run: RunFolder) -> None:
        """Lets `run` begin where the point's latest attempt elsewhere has stopped. That one's ranks may be alive on a
        node that is cut off: they see that another goes on. Raises OSError."""
        for tried in range(_TRIES):
            try:
                self._inherit(number, run)
                return
            except OSError as error:  # its files have been archived just now
                if error.errno not in (errno.ENOENT, errno.ESTALE) or tried == _TRIES - 1:
                    raise

    def _inherit(self, number: int, run: RunFolder) -> None:
        found, journal = self._told(number)
        if found is None or (isinstance(found, RunFolder) and found.kept == run.kept):
            return
        if _started(events.read(run.events)) > _started(journal):
            return
        mode = held(self._sweep.path).stat().st_mode & 0o750
        for folder in (run.path.parent, run.path, run.kept.parent, run.kept, run.logs, run.heartbeats):
            held(folder).mkdir(mode=mode, exist_ok=True)
        if isinstance(found, RunFolder):
            for name in _OF_AN_ATTEMPT:
                _copy_tree(held(found.kept / name), held(run.kept / name))
            if not os.path.lexists(held(found.events)):  # it goes first: the copy may lack some
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(found.events))
            last = max(found.attempts(), default=-1)
            if not any(event["event"] == "end" and event.get("attempt") == last for event in journal):
                held(found.attempt_logs(last + 1)).mkdir(mode=0o750, exist_ok=True)  # which its ranks look for
        else:
            found.fill_logs(run)
        _write(journal, run)

    def _as_array_task(self, number: int) -> int:
        """The latest submission in which the point is an array task of its own; -1 where it is in none."""
        self._look()
        return max((one.number for one in self._submissions if not one.packed and number in one.points), default=-1)

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
        """The array tasks that may have had the point: by sweep.json, and those that it does not tell of, because the
        answer to their submission was lost."""
        self._look()
        known = set()
        for one in self._submissions:
            known.add(one.number)
            if one.packed and number in one.points:
                mine = one.task_of(number)
                yield from (f"{one.number}-{task}" for task in (one.array if mine is None else [mine]))
        yield from (name for name in self._tasks if int(name.partition("-")[0]) not in known)

    def _look(self) -> None:
        """At what may have changed."""
        sweep = self._sweep
        if self._has_changed(sweep.sweep_file):
            try:
                self._submissions = submissions.read(sweep.sweep_file)
            except ConfigError:  # it is told where the sweep is looked at
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
        now = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
        changed = self._seen.get(path) != now
        # Within one tick of the file system's clock it may change again.
        self._seen[path] = None if time.time() - facts.st_mtime < _YOUNG else now
        return changed


def _write(journal: list[dict[str, Any]], run: RunFolder) -> None:
    replace_text(run.events, "".join(f"{json.dumps(event)}\n" for event in journal))


def _started(journal: list[dict[str, Any]]) -> int:
    """The number of the latest attempt that a journal tells of."""
    numbers = (event.get("attempt") for event in journal if event["event"] == "attempt")
    return max((number for number in numbers if isinstance(number, int)), default=-1)


def _latest_attempt(run: RunFolder) -> int:
    """One that has written; who goes on elsewhere claims the next number."""
    return next((one for one in reversed(run.attempts()) if run.ranks_with_logs(one)), -1)


def _copy_tree(source: Path, target: Path) -> None:
    """Nothing where there is no such folder. FileNotFoundError where one of its files is deleted meanwhile."""
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
    tried: dict[object, int] = {}
    for event in journal:
        word, points = event["event"], event.get("points")
        if word == "submitting" and isinstance(number := event.get("number"), int):
            tried[event.get("token")] = number
        elif word == "submit-failed":
            tried.pop(event.get("token"), None)
        elif word == "retry" and isinstance(points, str):
            with contextlib.suppress(ValueError):  # a foreign hand's
                yield max(tried.values(), default=-1), Ranges.parse(points), event


@dataclass(frozen=True)
class Copy(RunFolder):
    """The records of an archived point as files of their own, for as long as this process lives."""

    log: Path | None = None
    """Where the logs stand in truth."""

    def told(self, path: Path) -> Path:
        if path == self.path and self.log is not None:
            return path if path.is_dir() else self.log.parent
        return self.log if self.log is not None and path.is_relative_to(self.logs) else path


def readable(run: RunFolder) -> RunFolder:
    """`run`; where it is a point that an array task keeps the records of, with these. OSError where the files cannot
    be read."""
    number, sweep = point_number(run), sweep_of(run)
    if number is None or sweep is None or not sweep.tasks.is_dir():
        return run
    records = _records(sweep)
    found = records.latest(number)
    if found is None:
        return RunFolder(run.path)
    return found if isinstance(found, RunFolder) else _copy(run, found, records.journal(number))


def lost(sweep: SweepFolder, number: int) -> Path | None:
    """The file that should have the records of a point, where it lacks them and the journal of the point's array task
    says that it has started. OSError where that cannot be read."""
    word = b'"event": "point", "point": %d, ' % number
    for name in _records(sweep).tasks_of(number):
        task = RunFolder(sweep.tasks / name)
        if any(word in block for block in events.blocks(task.events)):
            return task.path / LINES
    return None


def _copy(run: RunFolder, found: Archived, journal: list[dict[str, Any]]) -> Copy:
    copy = Copy(run.path, _place(run.path), found.log)
    if _copied.get(copy) != (found, journal):
        shutil.rmtree(copy.kept, ignore_errors=True)
        copy.kept.mkdir(mode=0o700, parents=True)
        found.fill_logs(copy)
        replace_text(copy.config, found.config)
        _write(journal, copy)
        _copied[copy] = (found, journal)
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
