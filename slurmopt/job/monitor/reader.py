"""Reads one source in a thread of its own, so that a driver that does not return holds up nothing else."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

from slurmopt.errors import one_line
from slurmopt.job.monitor.sources.source import Source
from slurmopt.job.monitor.sources.table import Opener

_LONGEST_ERROR = 200
_OPEN_AGAIN_SECONDS = 60.0
"""After a source could not be opened: a driver may come up later."""


class Reader:
    """One source, from opening to closing. All methods are called by the sampler's main thread."""

    def __init__(self, name: str, opener: Opener, slow_after: float) -> None:
        """`slow_after`: seconds of one reading after which an event tells of it."""
        self.name = name
        self._opener, self._slow_after = opener, slow_after
        self._go, self._done, self._lock = threading.Event(), threading.Event(), threading.Lock()
        self._source: Source | None = None
        self._readings: list[tuple[float, dict[str, float]]] = []
        self._events: list[dict[str, Any]] = []
        self._facts: dict[str, Any] = {}
        self._absent: dict[str, str] = {}
        self._busy_since: float | None = None
        self._told_slow = self._leave = False
        self._failure: str | None = None
        self._open_at = 0.0
        self._thread = threading.Thread(target=self._run, name=f"slurmopt-{name}", daemon=True)

    def start(self) -> None:
        """Opens the source, and reads it for the first time."""
        self._busy_since = time.monotonic()
        self._go.set()
        self._thread.start()

    def ask(self) -> None:
        """Asks for a reading, if the last one has come. A source that is slow is told of once, while it is."""
        with self._lock:
            since = self._busy_since
            if since is None:
                self._busy_since, self._told_slow = time.monotonic(), False
                self._done.clear()
                self._go.set()
            elif (took := time.monotonic() - since) >= self._slow_after and not self._told_slow:
                self._told_slow = True
                self._note("slow", seconds=round(took, 1))

    def take(self) -> tuple[list[tuple[float, dict[str, float]]], list[dict[str, Any]]]:
        """The readings since the last call, each with the seconds since the one before it; and the events."""
        with self._lock:
            taken = self._readings, self._events
            self._readings, self._events = [], []
            return taken

    def told(self) -> tuple[dict[str, Any], dict[str, str]]:
        """The source's facts, and its columns without values."""
        with self._lock:
            return self._facts, self._absent

    def wait(self, deadline: float) -> None:
        """Waits until the reading that was asked for has come, or until `deadline` by the monotonic clock."""
        self._done.wait(max(0.0, deadline - time.monotonic()))

    def close(self, deadline: float) -> None:
        """Closes the source, if it comes back before `deadline`."""
        self._leave = True
        self._go.set()
        self._thread.join(max(0.0, deadline - time.monotonic()))

    # ---- in the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        last = time.monotonic()
        while self._go.wait() and not self._leave:
            self._go.clear()
            try:
                if self._is_open():
                    last = self._read_once(last)
            except Exception as error:  # noqa: BLE001 - drivers of others: one that fails yields no values
                self._tell_failure(error)
            with self._lock:
                self._busy_since = None
                self._done.set()
        if self._source is not None:
            self._source.close()
            events = self._source.events()  # of the whole attempt
            with self._lock:
                self._events += events

    def _is_open(self) -> bool:
        """Opens the source, where that is due."""
        if self._source is None and time.monotonic() >= self._open_at:
            self._open_at = time.monotonic() + _OPEN_AGAIN_SECONDS
            self._source = self._opener()
            if self._source is None:  # this node has none of it
                self._open_at = math.inf
                return False
            facts = self._source.facts()
            with self._lock:
                self._facts = facts
        return self._source is not None

    def _read_once(self, last: float) -> float:
        assert self._source is not None
        values, events, absent = self._source.read(), self._source.events(), self._source.absent()
        now = time.monotonic()
        with self._lock:
            self._readings.append((max(now - last, 1e-3), values))
            self._events += events
            self._absent = absent
            self._failure = None
        return now

    def _tell_failure(self, error: Exception) -> None:
        """A failure that goes on is told of once."""
        what = one_line(f"{type(error).__name__}: {error}")[:_LONGEST_ERROR]
        with self._lock:
            if what != self._failure:
                self._failure = what
                self._note("failed", error=what)

    def _note(self, event: str, **fields: Any) -> None:
        self._events.append({"event": event, "time": round(time.time(), 2), "source": self.name, **fields})
