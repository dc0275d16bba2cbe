"""Looks at the runs again and again in a thread of its own, so that neither a slow file system nor a slurmctld that
does not answer holds up the keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from slurmopt.board.rows.reading import Reading

_SHARE = 100.0
"""The wait is at least so many times as long as a look took: less than one percent of a core. Not after the first look,
which reads all runs, and imports what reads them."""
_LONGEST = 60.0


class Looking(threading.Thread):
    """The thread. It never ends by itself, and does not hold up the end of the program."""

    def __init__(
        self, reading: Reading, every: float, changed: Callable[[], None], failed: Callable[[Exception], None]
    ) -> None:
        """`every`: seconds between two looks, at least. The thread calls `changed` after each piece of news, and
        `failed` with an error that ends it."""
        super().__init__(name="slurmopt-board", daemon=True)
        self._reading, self._every, self._changed, self._failed = reading, every, changed, failed
        self._wake = threading.Event()
        self._shown: Collection[Path] = ()
        self._over = False

    def show(self, paths: Collection[Path]) -> None:
        """Which rows are on the screen."""
        self._shown = frozenset(paths)

    def now(self) -> None:
        """Looks at once, as after a cancel."""
        self._wake.set()

    def end(self) -> None:
        """Ends the thread after its look."""
        self._over = True
        self._wake.set()

    def run(self) -> None:
        """Looks until `end`."""
        try:
            self._look()
            self._wake.wait(self._every)
            while not self._over:
                self._wake.clear()
                self._wake.wait(min(_LONGEST, max(self._every, _SHARE * self._look())))
        except Exception as error:  # noqa: BLE001 - the program shows it and ends
            self._failed(error)

    def _look(self) -> float:
        """Looks once; returns the seconds of CPU time that it took."""
        began, told = time.thread_time(), self._reading.problem
        for has_changed in self._reading.look(self._shown):
            if (has_changed or self._reading.problem != told) and not self._over:
                told = self._reading.problem
                self._changed()
        return time.thread_time() - began
