"""Points whose folder has gone because they left nothing of their own: see `slurmopt.folder.archive`."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from slurmopt.errors import ConfigError
from slurmopt.folder import events
from slurmopt.folder.archive import ASIDE, Archived, TaskArchive
from slurmopt.folder.layout import RunFolder
from slurmopt.folder.sweep import SweepFolder, point_number, sweep_of
from slurmopt.grid import submissions

_TRIES = 10


class Archives:
    """What the array tasks of a sweep hold of its points; each file is read once, and again as far as it grows."""

    def __init__(self, sweep: SweepFolder) -> None:
        self._sweep = sweep
        self._archives: dict[str, TaskArchive] = {}
        self._submissions: list[submissions.Submission] = []
        self._tasks: list[str] = []
        self._seen: list[tuple[int, int] | None] = [None, None]

    def find(self, number: int) -> Archived | None:
        """The point as the array task of its latest attempt holds it. OSError where a file cannot be read."""
        found = [self._archive(name).find(number) for name in self._of(number)]
        return max((one for one in found if one is not None), key=lambda one: one.age, default=None)

    def journal(self, number: int) -> list[dict[str, Any]]:
        """The events of a point, archived or not; none where it has not started."""
        run = self._sweep.point(number)
        if not os.path.lexists(run.events) and (found := self.find(number)) is not None:
            return found.journal
        return events.read(run.events)

    def put_back(self, number: int) -> bool:
        """Gives an archived point its folder again, which it needs to go on; whether it has one now, as it has not
        before its start. Raises OSError, JobError."""
        run = self._sweep.point(number)
        for _ in range(_TRIES):
            if os.path.lexists(run.events):
                return True
            if (found := self.find(number)) is None:
                return False
            try:
                if not self._moved_back(run, number):
                    found.restore(run)
            except FileNotFoundError:  # another does the same, or takes it away again
                continue
        raise OSError(errno.EBUSY, "the point's folder cannot be put back", str(run.path))

    def _moved_back(self, run: RunFolder, number: int) -> bool:
        """A kill may have left the folder itself on its way out: it can hold more than the line tells."""
        for name in self._of(number):
            try:
                os.rename(self._sweep.tasks / name / f"{ASIDE}{run.path.name}", run.path)
                return True
            except OSError:
                continue
        return False

    def _archive(self, name: str) -> TaskArchive:
        if name not in self._archives:
            self._archives[name] = TaskArchive(RunFolder(self._sweep.tasks / name))
        return self._archives[name]

    def _of(self, number: int) -> Iterator[str]:
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
        file, tasks = _facts(self._sweep.sweep_file), _facts(self._sweep.tasks)
        if file != self._seen[0]:
            try:
                self._submissions = submissions.read(self._sweep.sweep_file)
            except ConfigError:  # it is told where the sweep is looked at
                self._submissions = []
        if tasks is None:
            self._tasks = []
        elif tasks != self._seen[1]:
            self._tasks = [name for name in os.listdir(self._sweep.tasks) if _is_task(name)]
        self._seen = [file, tasks]


def _facts(path: Path) -> tuple[int, int] | None:
    try:
        facts = os.stat(path)
    except FileNotFoundError:
        return None
    return facts.st_ino, facts.st_mtime_ns


def _is_task(name: str) -> bool:
    submission, _, task = name.partition("-")
    return submission.isdecimal() and task.isdecimal()


@dataclass(frozen=True)
class Copy(RunFolder):
    """The folder of an archived point as it was, made anew beside the user's for as long as this process lives."""

    original: Path
    log: Path
    """Where the logs stand in truth."""

    def told(self, path: Path) -> Path:
        if path == self.path:
            return self.original
        return self.log if path.is_relative_to(self.logs) else path


def readable(run: RunFolder, archives: Archives | None = None) -> RunFolder:
    """`run`; where it is a point that has been archived, a copy of what its folder was. OSError where the files cannot
    be read. `archives`: those of its sweep, where several points are asked for."""
    if os.path.lexists(run.events):
        return run
    number, sweep = point_number(run), sweep_of(run)
    if number is None or sweep is None or isinstance(run, Copy):
        return run
    found = (archives or Archives(sweep)).find(number)
    return run if found is None else _copy(sweep, run, found)


def _copy(sweep: SweepFolder, run: RunFolder, found: Archived) -> Copy:
    copy = _mirror(sweep.path) / "points" / run.path.name
    if _copied.get(copy) != found:
        shutil.rmtree(copy, ignore_errors=True)
        found.fill(RunFolder(copy))
        _copied[copy] = found
    return Copy(copy, run.path, found.log)


_copied: dict[Path, Archived] = {}


@cache
def _mirror(sweep: Path) -> Path:
    """A folder with the sweep's name and ID, and links to all that lies in it but points."""
    place = Path(_temporary().name, str(len(os.listdir(_temporary().name))), sweep.parent.name, sweep.name)
    (place / "points").mkdir(parents=True)
    for name in os.listdir(sweep):
        if name != "points":
            (place / name).symlink_to(sweep / name)
    return place


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="slurmopt-")


def put_back(run: RunFolder) -> bool:
    """`Archives.put_back` of one point. Raises OSError, JobError."""
    number, sweep = point_number(run), sweep_of(run)
    return number is not None and sweep is not None and Archives(sweep).put_back(number)
