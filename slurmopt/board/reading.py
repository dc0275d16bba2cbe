"""Makes the rows of the board from the folders of runs and sweeps, and keeps them up to date.

A run that has ended is read once; later its journal is only looked at, for somebody may retry it. A run under way is
read again when its journal or heartbeat has changed, or Slurm's answer; one that is not on the screen less often.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurmopt.board.folders import Folders
from slurmopt.board.gpu_use import GpuUse
from slurmopt.board.of_status import run_row
from slurmopt.board.row import GONE, Row
from slurmopt.errors import one_line
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import is_sweep
from slurmopt.runs.status.query import Status, ask_slurm, in_slurm, judged, with_unlisted_jobs
from slurmopt.runs.status.state import Slurm

_SLURM_EVERY = 15.0
_HIDDEN_EVERY, _SILENT_EVERY = 15.0, 30.0
"""Seconds after which a run under way is read again: one that is not on the screen; one of which nothing changes."""
_SLICE = 20
"""So many looks until each ended run that is not on the screen was looked at."""
_BATCH = 100
_CURVE = 64
_NOT_ASKED = "not asked yet"


@dataclass
class _Kept:
    """What is known of one folder between two looks."""

    folder: RunFolder
    signature: tuple[int, ...] = ()
    judged: float = 0.0
    """When, by the monotonic clock."""
    asked: float = -1.0
    """When the Slurm that it was judged by was asked."""
    attempt: int | None = None
    ended: bool = False
    in_slurm: bool = False
    job: str = ""
    curve: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_CURVE))
    """Step and value of the shown metric."""
    gpu: GpuUse | None = None


class Reading:
    """The rows of all runs and sweeps in some folders."""

    def __init__(self, places: list[Path]) -> None:
        self.folders = Folders(places)
        self.rows: dict[Path, Row] = {}
        self.problem = ""
        """Why Slurm could not be asked."""
        self._kept: dict[Path, _Kept] = {}
        self._sweeps: dict[Path, SweepReading] = {}
        self._slurm = Slurm(problem=_NOT_ASKED)
        self._asked = float("-inf")
        self._looks = 0

    def first(self, count: int) -> None:
        """Finds all runs, and reads the newest of them without asking Slurm: for a first picture at once."""
        self._find()
        newest = [path for path in self.rows if path in self._kept][:count]
        self._judge(newest)

    def look(self, shown: Collection[Path]) -> Iterator[bool]:
        """Brings the rows up to date, those on the screen first; yields after each batch whether rows have changed."""
        before = dict(self.rows)
        self._looks += 1
        self._find()
        self._ask_slurm()
        due = [path for path in self._kept if self._is_due(path, path in shown)]
        due.sort(key=lambda path: path not in shown)
        for at in range(0, len(due), _BATCH):
            self._judge(due[at : at + _BATCH])
            yield True
        for path, sweep in self._sweeps.items():
            if sweep.is_due():
                self.rows[path] = sweep.read()
                yield True
        if due and self._asked == float("-inf"):
            self._ask_slurm()  # now it is known whether any run is in Slurm
            self._judge([path for path in due if self._kept[path].in_slurm])
        yield self.rows != before

    def _find(self) -> None:
        runs = self.folders.find()
        for run in runs:
            row = self.rows.get(run.path)
            if row is None or row.state == GONE:
                self._add(run)
        found = {run.path for run in runs}
        for path in [path for path in self.rows if path not in found]:
            self._lose(path)

    def _add(self, run: RunFolder) -> None:
        of_sweep = is_sweep(run.path)
        self.rows[run.path] = Row(run.path, run.path.parent.name, run.path.name, of_sweep, read=False)
        if of_sweep:
            self._sweeps[run.path] = SweepReading(run.path)
        else:
            self._kept[run.path] = _Kept(run)

    def _lose(self, path: Path) -> None:
        """Its row stays, and says so."""
        if self.rows[path].state != GONE:
            why = "its folder was removed or renamed"
            self.rows[path] = replace(self.rows[path], state=GONE, detail=why, left=None, gpu=(), read=True)
        self._kept.pop(path, None)
        self._sweeps.pop(path, None)

    def _ask_slurm(self) -> None:
        """Asks for squeue's answer, which all commands of this user share, where a run may be in Slurm."""
        waiting = [kept for kept in self._kept.values() if kept.in_slurm and not kept.ended]
        if not any(kept.in_slurm for kept in self._kept.values()):
            self.problem = ""
            return
        if time.monotonic() - self._asked < _SLURM_EVERY:
            return
        slurm = with_unlisted_jobs(ask_slurm(fresh=False), [kept.job for kept in waiting if kept.job], fresh=False)
        self._slurm, self._asked = slurm, time.monotonic()
        self.problem = one_line(slurm.problem or "")

    def _is_due(self, path: Path, is_shown: bool) -> bool:
        kept, now = self._kept[path], time.monotonic()
        if not kept.signature:
            return True
        if kept.ended:
            is_looked_at = is_shown or hash(path) % _SLICE == self._looks % _SLICE
            return is_looked_at and _signature(kept) != kept.signature
        if not is_shown:
            return now - kept.judged > _HIDDEN_EVERY
        if kept.asked != self._slurm.asked or now - kept.judged > _SILENT_EVERY:
            return True
        return _signature(kept) != kept.signature

    def _judge(self, paths: list[Path]) -> None:
        """Reads runs, and makes their rows."""
        for path in paths:
            kept = self._kept[path]
            kept.signature = _signature(kept)  # before it is read: what changes meanwhile is read the next time
            (status,) = judged([kept.folder], self._slurm, details=True)
            self._take(path, kept, status)

    def _take(self, path: Path, kept: _Kept, status: Status) -> None:
        journal = status.journal
        attempt = journal.attempt.number if journal.attempt else None
        if attempt != kept.attempt:
            kept.attempt, kept.gpu = attempt, None
            kept.signature = _signature(kept)
        kept.judged, kept.asked = time.monotonic(), self._slurm.asked
        kept.ended = journal.ended is not None and not journal.may_return
        kept.in_slurm, kept.job = in_slurm(journal), journal.job or ""
        if not os.path.lexists(kept.folder.events):
            return self._lose(path)
        row = run_row(status, kept.curve, self._use(kept, status))
        if self._slurm.problem == _NOT_ASKED and row.state == "unknown" and not journal.problem:
            row = replace(row, state=self.rows[path].state, detail="")
        self.rows[path] = row

    def _use(self, kept: _Kept, status: Status) -> tuple[float | None, ...]:
        """How busy the GPUs of a running attempt are."""
        if kept.attempt is None or not status.alive:
            return ()
        if kept.gpu is None:
            kept.gpu = GpuUse(kept.folder, kept.attempt)
        return kept.gpu.values()


def _signature(kept: _Kept) -> tuple[int, ...]:
    """Changes where the journal or the heartbeat does."""
    of_journal = _stamp(kept.folder.events)
    if kept.ended or kept.attempt is None:
        return of_journal
    beat = kept.folder.heartbeat(kept.attempt, 0)
    return of_journal + (_stamp(beat) or _stamp(beat.parent))


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        facts = os.stat(path)
    except OSError:
        return ()
    return facts.st_mtime_ns, facts.st_size, facts.st_ino


class SweepReading:
    """Makes the row of one sweep. Reading one of 100,000 points takes long, and is done more seldom."""

    _EVERY, _PATIENCE = 5.0, 30.0

    def __init__(self, path: Path) -> None:
        from slurmopt.run_folder.sweep_layout import SweepFolder

        self._sweep = SweepFolder(path)
        self._due = float("-inf")
        self._signature: tuple[int, ...] = ()
        self._alive = True

    def is_due(self) -> bool:
        """Whether it has not ended or has changed, and the last look was long enough ago."""
        return time.monotonic() >= self._due and (self._alive or self._signature != self._stamps())

    def read(self) -> Row:
        """The row; one that cannot be read says why."""
        from slurmopt.board.of_status import sweep_row

        began, self._signature = time.monotonic(), self._stamps()
        row = sweep_row(self._sweep)
        took = time.monotonic() - began
        self._alive = row.alive or row.state in ("unknown", "unsubmitted")
        self._due = time.monotonic() + max(self._EVERY, self._PATIENCE * took)
        return row

    def _stamps(self) -> tuple[int, ...]:
        sweep = self._sweep
        files = (sweep.events, sweep.sweep_file, sweep.points, sweep.path)
        return tuple(number for path in files for number in _stamp(path))
