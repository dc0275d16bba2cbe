"""Makes the row of a sweep. Reading one of 100,000 points takes long, so that it is done more seldom."""

from __future__ import annotations

import time

from slurmopt.board.rows.kept import stamp
from slurmopt.board.rows.of_status import sweep_row
from slurmopt.board.rows.row import Row
from slurmopt.run_folder.sweep_layout import SweepFolder

_EVERY = 5.0
"""Seconds between two readings, at least."""
_PATIENCE = 100.0
"""The multiple of what a reading took."""


class SweepReading:
    """One sweep."""

    def __init__(self, sweep: SweepFolder) -> None:
        self._sweep = sweep
        self._due = float("-inf")
        self._stamps: tuple[int, ...] = ()
        self._alive = True

    def is_due(self) -> bool:
        """Whether it has not ended or has changed, and the last reading was long enough ago."""
        return time.monotonic() >= self._due and (self._alive or self._stamps != self._new_stamps())

    def read(self) -> Row:
        """The row; of one that cannot be read, why."""
        self._stamps, began = self._new_stamps(), time.thread_time()
        row = sweep_row(self._sweep)
        took = time.thread_time() - began
        self._alive = row.alive or row.state in ("unknown", "unsubmitted")
        self._due = time.monotonic() + max(_EVERY, _PATIENCE * took)
        return row

    def _new_stamps(self) -> tuple[int, ...]:
        sweep = self._sweep
        files = (sweep.events, sweep.sweep_file, sweep.points, sweep.path)
        return tuple(number for path in files for number in stamp(path))
