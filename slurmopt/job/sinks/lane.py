"""Runs one sink in a thread of its own, with a bounded queue: a sink that fails or hangs disturbs no other."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from slurmopt.errors import one_line
from slurmopt.job.sinks.record import NotWritten, Record, Sink, SinkError, Unusable

MOST_WAITING = 20_000
"""Records that wait for a sink; the oldest are dropped."""
SILENCE = 30.0
"""Seconds after which a call that has not returned counts as hanging."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


class Lane:
    """The queue and the thread of one sink."""

    def __init__(self, name: str, open_sink: Callable[[], Sink], say: Callable[[str], None]) -> None:
        """`say` takes a line for the rank's log."""
        self.name = name
        self._open_sink, self._say = open_sink, say
        self._sink: Sink | None = None
        self._waiting: deque[Record] = deque()
        self._changed = threading.Condition()
        self._closing = self._complained = self._hung = False
        self._off = threading.Event()
        self._lost = 0
        self._outcome: str | None = None
        self._pause = _SHORTEST_PAUSE
        self._busy_since: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"metrics-{name}", daemon=True)
        self._thread.start()

    def put(self, records: Sequence[Record]) -> None:
        """Takes records; never waits for the sink."""
        if self._off.is_set():
            return
        with self._changed:
            self._waiting.extend(records)
            while len(self._waiting) > MOST_WAITING:
                self._waiting.popleft()
                self._lost += 1
            self._changed.notify()

    def look(self) -> None:
        """Says once if the sink's call does not return."""
        since = self._busy_since
        self._hung = since is not None and time.monotonic() - since > SILENCE
        if self._hung:
            self._complain(f"no answer for {SILENCE:g} s")

    def close(self, outcome: str | None) -> None:
        """Tells the sink that nothing more comes, and how the rank ended."""
        with self._changed:
            self._outcome, self._closing = outcome, True
            self._changed.notify()

    def join(self, deadline: float) -> None:
        """Waits until the sink has finished, until `deadline` (monotonic); not for one that hangs."""
        while self._thread.is_alive() and not self._hung and time.monotonic() < deadline:
            self._thread.join(0.1)
            self.look()
        if self._thread.is_alive():
            self._complain("did not finish in the time that it has at the end")
            self._lost += len(self._waiting)
        if self._lost:
            self._say(f"metrics.{self.name}: {self._lost:,} records were not sent")

    def _run(self) -> None:
        self._try(self._open, [])
        while (batch := self._next()) is not None and not self._off.is_set():
            self._try(lambda batch=batch: self._write(batch), batch)  # type: ignore[misc]
        if not self._off.is_set():
            self._try(self._finish, [])

    def _next(self) -> list[Record] | None:
        """All that waits, after a pause if the last call failed; None at the end."""
        with self._changed:
            if self._complained and self._pause > _SHORTEST_PAUSE:
                self._changed.wait_for(lambda: self._closing, self._pause)
            self._changed.wait_for(lambda: self._waiting or self._closing)
            batch = list(self._waiting)
            self._waiting.clear()
            return batch or None

    def _open(self) -> Sink:
        if self._sink is None:
            self._sink = self._open_sink()
        return self._sink

    def _write(self, batch: list[Record]) -> None:
        self._open().write(batch)

    def _finish(self) -> None:
        if self._sink is not None:
            self._sink.close(self._outcome)

    def _try(self, call: Callable[[], object], batch: list[Record]) -> None:
        self._busy_since = time.monotonic()
        try:
            call()
            self._pause = _SHORTEST_PAUSE
        except Unusable as error:
            self._off.set()
            self._complain(f"{error}; nothing is sent there")
        except Exception as error:  # noqa: BLE001 - the boundary to the clients of the sinks
            self._failed(error, batch)
        finally:
            self._busy_since = None

    def _failed(self, error: Exception, batch: list[Record]) -> None:
        self._complain(str(error) if isinstance(error, SinkError) else f"{type(error).__name__}: {error}")
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        with self._changed:
            if isinstance(error, NotWritten) and not self._closing:
                self._waiting.extendleft(reversed(batch))
            else:
                self._lost += len(batch)

    def _complain(self, why: str) -> None:
        """Once: a sink that fails each second would fill the log."""
        if not self._complained:
            self._complained = True
            self._say(f"metrics.{self.name}: {one_line(why)} (the training goes on)")
