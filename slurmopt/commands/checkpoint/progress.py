"""Shows a progress bar on a terminal, elsewhere a notice that the operation continues."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

from slurmopt.slow_notice import slow_notice

_SECONDS = 2.0


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yields a thread-safe function to call with numbers of processed bytes. Shows nothing in the first two seconds."""
    if not sys.stderr.isatty():
        with slow_notice(what):
            yield lambda count: None
        return
    bar, lock, began = _Bar(what, total), threading.Lock(), time.monotonic()

    def done(count: int) -> None:
        with lock:
            bar.advance(count, show=time.monotonic() - began > _SECONDS)

    try:
        yield done
    finally:
        bar.stop()


class _Bar:
    """Creates the bar when it is first shown, since rich takes a tenth of a second to import."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, total, 0
        self._stop: Callable[[], None] | None = None
        self._update: Callable[[int], None] | None = None

    def advance(self, count: int, show: bool) -> None:
        self._done += count
        if show and self._update is None:
            self._show()
        if self._update is not None:
            self._update(self._done)

    def stop(self) -> None:
        if self._stop is not None:
            self._stop()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
        task = bar.add_task(self._what, total=self._total)
        bar.start()
        self._stop, self._update = bar.stop, lambda done: bar.update(task, completed=done)
