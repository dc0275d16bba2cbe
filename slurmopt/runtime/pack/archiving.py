"""Takes the folders of ended points away that left nothing of their own, many at a time and beside the loop."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from slurmopt.errors import JobError, one_line
from slurmopt.folder.layout import RunFolder
from slurmopt.grid.points import Points
from slurmopt.grid.start import unlink
from slurmopt.runtime.conclusion import say
from slurmopt.runtime.pack.archive import archive, clear_up
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
        """What an earlier attempt of the array task has left behind comes first. Raises OSError."""
        self._pack, self._points = pack, points
        clear_up(pack.folder, pack.sweep.points, self._gone)
        self._waiting = [run for run in map(pack.sweep.point, journal.ended_points) if os.path.lexists(run.events)]
        self._batch: list[RunFolder] = []
        self._broken_off: list[RunFolder] = []
        self._since = time.monotonic()
        self.process: int | None = None
        """The one that archives just now."""

    def add(self, run: RunFolder) -> None:
        """A point has ended for good, and the array task's journal tells so."""
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting.append(run)

    def go_on(self) -> None:
        """Starts the next batch where one is due."""
        due = len(self._waiting) >= _MANY or time.monotonic() - self._since >= _SECONDS
        if self.process is None and self._waiting and due:
            batch = self._waiting[:_MANY]
            with contextlib.suppress(OSError):  # no process is left: the next look tries again
                self.process = forked(lambda: self._archive(batch))
                self._batch, self._waiting = batch, self._waiting[_MANY:]

    def has_ended(self, pid: int, status: int) -> None:
        """A child of the parent has ended."""
        if pid == self.process:
            self.process = None
            self._broken_off += self._batch if status != 0 else []

    def finish(self) -> None:
        """Archives what is left, once the array task has said how it ended."""
        if self.process is not None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.process, 0)
            self._broken_off += self._batch
            self.process = None
        if self._broken_off:
            with contextlib.suppress(OSError):
                clear_up(self._pack.folder, self._pack.sweep.points, self._gone)
        self._archive(self._broken_off + self._waiting)

    def _archive(self, batch: list[RunFolder]) -> None:
        for start in range(0, len(batch), _MANY):
            some = batch[start : start + _MANY]
            try:
                archive(self._pack.folder, some, self._gone)
            except (OSError, JobError) as error:
                what = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
                where = "" if isinstance(error, JobError) else f": {error.filename or self._pack.folder.path}"
                say(f"{len(some)} points that have ended keep their folders: {one_line(f'{what}{where}')}")

    def _gone(self, number: int, values: dict[str, Any] | None) -> None:
        """Takes the link to a folder away that has gone."""
        points, sweep = self._points, self._pack.sweep
        if points.folder is not None and (points.kind != "search" or values is not None):
            unlink(sweep, sweep.point(number), points.name(number, values))
