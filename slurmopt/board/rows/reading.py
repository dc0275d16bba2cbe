"""Makes the rows of the board from the folders of runs and sweeps, and keeps them up to date.

A run that has ended is read once; later only its journal's time is looked at, for somebody may retry it. A run under
way is read again when its journal or heartbeat has changed, or Slurm's answer; one that is not on the screen less
often.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from slurmopt.board.rows.folders import Folders
from slurmopt.board.rows.kept import Kept
from slurmopt.board.rows.of_status import run_row
from slurmopt.board.rows.row import GONE, UNREAD, Row
from slurmopt.board.rows.sweep_reading import SweepReading
from slurmopt.errors import one_line
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder, is_sweep
from slurmopt.runs.status.query import Status, ask_slurm, judged, with_unlisted_jobs
from slurmopt.runs.status.state import Slurm

_SLURM_EVERY = 15.0
"""Seconds for which squeue's answer is used; it is shared with all other commands of this user."""
_SLICE = 20
"""So many looks until each ended run that is not on the screen was looked at."""
_BATCH = 100
"""Runs that are read between two pictures."""
_NOT_ASKED = "it was not asked yet"
_VANISHED = "its folder was removed or renamed"


class Reading:
    """The rows of all runs and sweeps in some folders."""

    def __init__(self, folders: Folders) -> None:
        self.rows: dict[Path, Row] = {}
        self.problem = ""
        """Why Slurm could not be asked."""
        self._folders = folders
        self._found: list[RunFolder] = []
        self._runs: dict[Path, Kept] = {}
        self._sweeps: dict[Path, SweepReading] = {}
        self._slurm = Slurm(problem=_NOT_ASKED)
        self._asked_at = float("-inf")
        self._looks = 0

    def first(self, count: int) -> None:
        """Finds all runs, and reads the newest of them without asking Slurm: for a first picture at once."""
        self._find()
        for path in list(self._runs)[:count]:
            self._read(path)

    def look(self, shown: Collection[Path]) -> Iterator[bool]:
        """Brings the rows up to date, those on the screen first; yields after each batch whether rows have changed."""
        self._looks += 1
        yield self._find()
        due = self._due(shown)
        if self._ask_slurm():
            due = list(dict.fromkeys([*self._due(shown), *self._open()]))
        for at in range(0, len(due), _BATCH):
            yield any([self._read(path) for path in due[at : at + _BATCH]])
        if self._ask_slurm():  # now it is known whether any run is in Slurm
            yield any([self._read(path) for path, kept in list(self._runs.items()) if kept.in_slurm])
        for path, sweep in list(self._sweeps.items()):
            if sweep.is_due():
                yield self._take(path, sweep.read())

    def _find(self) -> bool:
        """Takes new folders, and says which are gone. False where there is nothing new."""
        found = self._folders.find()
        if found is self._found:
            return False
        for run in found:
            row = self.rows.get(run.path)
            if row is None or row.state == GONE:
                self._add(run)
        paths = {run.path for run in found}
        for path in [path for path in self.rows if path not in paths]:
            self._lose(path)
        self._found = found
        return True

    def _add(self, run: RunFolder) -> None:
        path, of_sweep = run.path, is_sweep(run.path)
        self.rows[path] = Row(path, path.parent.name, path.name, of_sweep, read=False)
        if of_sweep:
            self._sweeps[path] = SweepReading(SweepFolder(path))
        else:
            self._runs[path] = Kept(run)

    def _lose(self, path: Path) -> bool:
        """Its row stays, and says so."""
        self._runs.pop(path, None)
        self._sweeps.pop(path, None)
        row = self.rows[path]
        detail = f"{_VANISHED}; job {row.job} may go on" if row.alive and row.job else _VANISHED
        return self._take(path, replace(row, state=GONE, detail=detail, left=None, rate=None, gpu=(), read=True))

    def _due(self, shown: Collection[Path]) -> list[Path]:
        """The runs to read, those on the screen first."""
        asked = self._slurm.asked
        first = [path for path in shown if path in self._runs and self._runs[path].is_due(True, asked)]
        later = [
            path
            for number, (path, kept) in enumerate(self._runs.items())
            if (not kept.ended or number % _SLICE == self._looks % _SLICE)
            and path not in shown
            and kept.is_due(False, asked)
        ]
        return first + later

    def _open(self) -> list[Path]:
        """The runs of which the journal alone does not tell the state."""
        return [path for path, kept in self._runs.items() if kept.in_slurm and self.rows[path].state == UNREAD]

    def _ask_slurm(self) -> bool:
        """Asks for squeue's answer where a run may be in Slurm, and the last answer is old. Whether it was asked."""
        jobs = [kept.job for kept in self._runs.values() if kept.in_slurm and not kept.ended and kept.job]
        if not any(kept.in_slurm for kept in self._runs.values()):
            self.problem = ""
            return False
        if time.monotonic() - self._asked_at < _SLURM_EVERY:
            return False
        self._slurm = with_unlisted_jobs(ask_slurm(fresh=False), jobs, fresh=False)
        self._asked_at = time.monotonic()
        self.problem = one_line(self._slurm.problem or "")
        return True

    def _read(self, path: Path) -> bool:
        """Reads a run, and makes its row. Whether the row has changed."""
        kept = self._runs[path]
        kept.signature = kept.stamps()  # before it is read: what changes meanwhile is read the next time
        try:
            (status,) = judged([kept.folder], self._slurm, details=True)
        except (OSError, RecursionError) as error:
            unknown = replace(self.rows[path], state="unknown", detail=one_line(str(error)), read=True)
            return self._take(path, unknown)
        if not os.path.lexists(kept.folder.events):
            return self._lose(path)
        kept.take(status, self._slurm.asked)
        return self._take(path, self._row(path, kept, status))

    def _row(self, path: Path, kept: Kept, status: Status) -> Row:
        row = run_row(status, kept.curve, kept.gpu_use(status))
        is_open = self._slurm.problem == _NOT_ASKED and row.state == "unknown" and not status.journal.problem
        return replace(row, state=self.rows[path].state, detail="") if is_open else row

    def _take(self, path: Path, row: Row) -> bool:
        has_changed = self.rows[path] != row
        self.rows[path] = row
        return has_changed
