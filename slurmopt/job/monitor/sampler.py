"""The loop of the sampler: asks the sources, makes rows, and leaves with the rank that started it.

Lengths of intervals are of the monotonic clock, their ends of the wall clock: a clock that is set moves a row, and
changes no value.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Sequence
from typing import Any

from slurmopt.job.monitor.here import Here
from slurmopt.job.monitor.reader import Reader
from slurmopt.job.monitor.rows import Merged
from slurmopt.job.monitor.series_writer import SeriesWriter
from slurmopt.job.monitor.sources.node_ranks import NodeRanks
from slurmopt.job.monitor.sources.table import openers
from slurmopt.job.monitor.start import LEAVE
from slurmopt.run_folder.access.open_folders import take_over
from slurmopt.run_folder.process import started_at

ROW_SECONDS = 10.0
"""The length of a row, unless the readings are further apart."""
_SLOW_SECONDS = 5.0
_WAIT_SECONDS = 0.4
"""For a reading that was asked for. One that takes longer comes into a later row."""
_LAST_SECONDS = 0.4
"""What the last reading may take: the rank waits for a second in all."""
_LOOK_SECONDS = 0.25
"""Between two looks whether the rank lives, once the pipe no longer tells."""
_CLOCK_SECONDS = 2.0
_LEAST_ROW = 0.2
_NICE = 10
"""The training comes first."""


def run(here: Here) -> None:
    """Samples until the rank asks for the end, or is gone."""
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    take_over(here.handed)
    ranks = NodeRanks(here)
    slow_after = max(_SLOW_SECONDS, here.every)
    readers = [Reader(name, opener, slow_after) for name, opener in openers(here, ranks).items()]
    Sampler(here, readers, SeriesWriter(here.run, here.attempt, here.node), ranks.forget).run()


class Sampler:
    """The readers of a node, and the row that is being made."""

    def __init__(
        self, here: Here, readers: Sequence[Reader], writer: SeriesWriter, before_last: Callable[[], None]
    ) -> None:
        """`before_last` is called before the last reading."""
        self._here, self._readers, self._writer = here, readers, writer
        self._row_seconds = max(ROW_SECONDS, here.every)
        self._row = Merged()
        self._began = time.monotonic()
        self._wall = time.time()
        self._facts = {"started": round(self._wall, 2)}
        self._before_last = before_last
        self._is_open = True

    def run(self) -> None:
        """Runs the loop. Readings have fixed times: a slow one does not move the next."""
        for reader in self._readers:
            reader.start()
        due = time.monotonic() + self._here.every
        while self._wait_until(due):
            now = time.monotonic()
            self._read(now + min(_WAIT_SECONDS, self._here.every / 4))
            if now - self._began >= self._row_seconds - self._here.every / 2:
                self._write_row()
            due = max(due + self._here.every, now)
        self._finish()

    def _finish(self) -> None:
        self._before_last()
        deadline = time.monotonic() + _LAST_SECONDS
        self._read(deadline)
        if time.monotonic() - self._began >= _LEAST_ROW:
            self._write_row()
        for reader in self._readers:
            reader.close(deadline)
            for event in reader.take()[1]:
                self._writer.event(event)
        self._writer.finish()

    def _read(self, deadline: float) -> None:
        """Asks for readings, and takes those that come before `deadline`. Others come into a later row."""
        for reader in self._readers:
            reader.ask()
        for reader in self._readers:
            reader.wait(deadline)
            readings, events = reader.take()
            for seconds, values in readings:
                self._row.add(values, seconds)
            for event in events:
                self._writer.event(event)

    def _write_row(self) -> None:
        now, wall = time.monotonic(), time.time()
        seconds = now - self._began
        jumped = wall - self._wall - seconds
        if abs(jumped) >= _CLOCK_SECONDS:
            self._writer.event({"event": "clock", "time": round(wall, 2), "seconds": round(jumped, 1)})
        facts: dict[str, Any] = dict(self._facts)
        absent: dict[str, str] = {}
        for reader in self._readers:
            its_facts, its_absent = reader.told()
            facts |= its_facts
            absent |= its_absent
        self._writer.row(wall, seconds, self._row.values(), facts, absent)
        self._row, self._began, self._wall = Merged(), now, wall

    def _wait_until(self, due: float) -> bool:
        """Waits until the next reading is due; False once the sampler is to leave."""
        while (left := due - time.monotonic()) > 0:
            if self._is_open:
                if select.select([0], [], [], left)[0]:
                    word = os.read(0, 64)
                    if LEAVE in word:
                        return False
                    self._is_open = bool(word)
            else:
                time.sleep(min(left, _LOOK_SECONDS))
            if not self._is_open and not self._rank_lives():
                return False
        return self._rank_lives()

    def _rank_lives(self) -> bool:
        if self._here.pid_started is None:  # a system without /proc
            return self._is_open
        return started_at(self._here.pid) == self._here.pid_started
