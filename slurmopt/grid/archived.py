"""Points whose folder has gone because they left nothing of their own: see `slurmopt.folder.archive`."""

from __future__ import annotations

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
from slurmopt.folder.archive import Archived, TaskArchive
from slurmopt.folder.layout import RunFolder
from slurmopt.folder.sweep import SweepFolder, point_number, sweep_of
from slurmopt.grid import submissions


class Archives:
    """What the array tasks of a sweep hold of its points; each file is read once."""

    def __init__(self, sweep: SweepFolder) -> None:
        self._sweep = sweep
        self._tasks: dict[Path, TaskArchive] = {}
        self._found: list[submissions.Submission] | None = None

    def find(self, number: int) -> Archived | None:
        """The point as its latest array task holds it. OSError where a file cannot be read."""
        for task in self._of(number):
            archive = self._tasks.get(task.path)
            if archive is None or (number not in archive and archive.has_grown()):
                archive = self._tasks[task.path] = TaskArchive(task)
            if (found := archive.find(number)) is not None:
                return found
        return None

    def journal(self, number: int) -> list[dict[str, Any]]:
        """The events of a point, archived or not; none where it has not started."""
        run = self._sweep.point(number)
        if not os.path.lexists(run.events) and (found := self.find(number)) is not None:
            return found.journal
        return events.read(run.events)

    def _of(self, number: int) -> Iterator[RunFolder]:
        if self._found is None:
            try:
                self._found = submissions.read(self._sweep.sweep_file)
            except ConfigError:  # it is told where the sweep is looked at
                self._found = []
        for one in reversed(self._found):
            if one.packed and number in one.points:
                mine = one.task_of(number)
                for task in one.array if mine is None else [mine]:
                    yield self._sweep.task(one.number, task)
        if not self._found:
            yield from sorted(map(RunFolder, self._sweep.tasks.glob("*-*")), key=lambda run: run.path, reverse=True)


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
        found.restore(RunFolder(copy))
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


def put_back(run: RunFolder) -> None:
    """Gives an archived point its folder again, which it needs to go on. Raises OSError."""
    number, sweep = point_number(run), sweep_of(run)
    if number is None or sweep is None or os.path.lexists(run.events):
        return
    if (found := Archives(sweep).find(number)) is not None:
        found.restore(run)
