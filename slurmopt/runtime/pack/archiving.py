"""Takes the folders of ended points away that left nothing of their own, many at a time and beside the loop."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from slurmopt.errors import one_line
from slurmopt.folder.archive import archive, clear_up
from slurmopt.folder.layout import RunFolder
from slurmopt.folder.sweep import SweepFolder
from slurmopt.grid.points import Points
from slurmopt.grid.start import unlink
from slurmopt.runtime.conclusion import say
from slurmopt.runtime.pack.fork import forked
from slurmopt.runtime.pack.journal import TaskJournal
from slurmopt.runtime.pack.words import Pack

_MANY = 64
_SECONDS = 5.0
"""The longest that an ended point waits for others."""


class Archiving:
    """The ended points of one array task. They are archived in a process of its own, one at a time: the loop has points
    to start meanwhile, and each batch waits for the disk once."""

    def __init__(self, pack: Pack, points: Points, journal: TaskJournal) -> None:
        """What an earlier attempt of the array task has left behind comes first."""
        self._pack, self._points = pack, points
        clear_up(pack.folder, pack.sweep.points)
        self._waiting = [run for run in map(pack.sweep.point, journal.ended_points) if os.path.lexists(run.events)]
        self._since = time.monotonic()
        self._process: int | None = None

    def add(self, run: RunFolder) -> None:
        """A point has ended for good, and the array task's journal tells so."""
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting.append(run)

    def go_on(self) -> None:
        """Starts the next batch where one is due."""
        due = len(self._waiting) >= _MANY or time.monotonic() - self._since >= _SECONDS
        if self._process is None and self._waiting and due:
            batch, self._waiting = self._waiting, []
            try:
                self._process = forked(lambda: _archive(self._pack, self._points, batch))
            except OSError:  # no process is left: the next look tries again
                self._waiting = batch

    def has_ended(self, pid: int) -> None:
        """A child of the parent has ended."""
        if pid == self._process:
            self._process = None

    @property
    def process(self) -> int | None:
        return self._process

    def finish(self) -> None:
        """Archives what is left."""
        if self._process is not None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._process, 0)
            self._process = None
        if self._waiting:
            _archive(self._pack, self._points, self._waiting)
            self._waiting = []


def _archive(pack: Pack, points: Points, batch: list[RunFolder]) -> None:
    def gone(number: int, values: dict[str, Any] | None) -> None:
        _unlink(pack.sweep, points, number, values)

    try:
        archive(pack.folder, batch, gone)
    except OSError as error:
        why = one_line(f"{error.strerror or error}: {error.filename or pack.folder.path}")
        say(f"{len(batch)} points that have ended keep their folders: {why}")


def _unlink(sweep: SweepFolder, points: Points, number: int, values: dict[str, Any] | None) -> None:
    if points.folder is not None and (points.kind != "search" or values is not None):
        unlink(sweep, sweep.point(number), points.name(number, values))
