"""Archives ended points in batches, in a thread beside the loop."""

from __future__ import annotations

import contextlib
import os
import time

from slurmopt.errors import JobError, SlurmoptError, one_line
from slurmopt.grid.point_folder import unlink
from slurmopt.grid.points import Points
from slurmopt.job.pack.archive import archive, delete, has_ended
from slurmopt.job.pack.journal import TaskJournal
from slurmopt.job.pack.pack_args import Pack
from slurmopt.job.pack.points.ownership import Ownership
from slurmopt.job.pack.process.fork import forked
from slurmopt.job.supervisor.attempt_end import say
from slurmopt.run_folder import events
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder

_MANY = 64
_SECONDS = 5.0
"""The longest time in seconds that an ended point waits for others to form a batch."""
_STALE = 60.0
"""Seconds after which records without a journal count as left by a kill."""


class Archiving:
    """The ended points of one array task. A process of its own archives them, one batch after the other: the loop has
    points to start meanwhile, and each batch waits for the disk once."""

    def __init__(self, pack: Pack, points: Points, journal: TaskJournal, ownership: Ownership) -> None:
        """Points that an earlier attempt of the array task has left come first. Raises OSError."""
        self._pack, self._points = pack, points
        self._waiting = dict.fromkeys(left_behind(pack.folder, pack.sweep))
        for run in self._waiting:
            number = int(run.path.name)
            # Killed just before it noted the end: nobody else can have started the point again.
            if has_ended(run) and not pack.shared and not journal.has_ended(number) and not ownership.overtaken(number):
                self.vacate(run)
        self._since = time.monotonic()
        self.process: int | None = None
        """The process that archives now, or None."""

    def add(self, run: RunFolder) -> None:
        """Adds a point that has ended for good, once the array task's journal says so."""
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting[run] = None

    def go_on(self) -> None:
        """Starts the next batch if one is due."""
        due = len(self._waiting) >= _MANY or time.monotonic() - self._since >= _SECONDS
        if self.process is None and self._waiting and due:
            batch = list(self._waiting)[:_MANY]
            with contextlib.suppress(OSError):  # no process is left: the next look tries again
                self.process = forked(lambda: self._archive(batch))
                self._waiting = dict.fromkeys(list(self._waiting)[_MANY:])

    def take_end(self, pid: int) -> None:
        """Notes that a child of the parent has ended."""
        if pid == self.process:
            self.process = None

    def finish(self) -> None:
        """Archives what is left, once the array task's outcome is written."""
        if self.process is not None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.process, 0)
            self.process = None
        self._archive(left_behind(self._pack.folder, self._pack.sweep))

    def _archive(self, batch: list[RunFolder]) -> None:
        for start in range(0, len(batch), _MANY):
            some = batch[start : start + _MANY]
            try:
                archive(self._pack.folder, some)
            except (OSError, JobError) as error:
                what = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
                where = "" if isinstance(error, JobError) else f": {error.filename or self._pack.folder.path}"
                say(f"{len(some)} points that have ended keep files of their own: {one_line(f'{what}{where}')}")

    def vacate(self, run: RunFolder) -> None:
        """Takes away what was made for the point's own files, where it wrote none, and the link to it. To be called
        before anybody can know that the point has ended, and start it again."""
        try:
            held(run.path).rmdir()
        except OSError:  # there are some
            return
        if self._points.folder is None:
            return
        with contextlib.suppress(OSError, SlurmoptError):  # a link that leads nowhere harms nobody
            values = next((event["values"] for event in events.read(run.events) if "values" in event), None)
            unlink(self._pack.sweep, run, self._points.name(int(run.path.name), values))


def left_behind(task: RunFolder, sweep: SweepFolder) -> list[RunFolder]:
    """The records that an array task keeps in separate files."""
    runs = [sweep.packed_point(number, task.path.name) for number in sweep.packed_points(task.path.name)]
    for run in runs:
        with contextlib.suppress(FileNotFoundError):
            # A kill in the middle of making or deleting it, unless another has just begun to make it.
            if not os.path.lexists(held(run.events)) and time.time() - held(run.kept).stat().st_mtime > _STALE:
                delete(run)
    return [run for run in runs if os.path.lexists(held(run.events))]
