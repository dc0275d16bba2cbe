"""The rank's end of the metric sinks: starts their process, and feeds it through a pipe without ever waiting.

What the process does not read in time is dropped, the oldest first, and counted.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import deque

from slurmopt import log
from slurmopt.config.metrics import from_word
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter
from slurmopt.job.rank_args import RankArgs
from slurmopt.run_folder.outcome import Outcome
from slurmopt.run_folder.process import module_words

MOST_WAITING = 20_000
"""Steps that wait for the process of the sinks."""
LAST_SECONDS = 5.0
"""The time in which the sinks may send the last metrics once the training has ended for good."""
HURRIED_SECONDS = 1.5
"""The same where the job is about to end, or another attempt waits for this one."""
_PIPE_BYTES = 1 << 20
_AT_ONCE = 500


class Feed:
    """The pipe to the process of the sinks. `put` may be called in any thread, also in a signal handler."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        self._process, self._pipe = process, process.stdin
        self._waiting: deque[tuple[float, int, dict[str, float]]] = deque(maxlen=MOST_WAITING)
        self._dropped = 0
        self._rest = b""
        self._seconds = LAST_SECONDS
        self._deadline = float("inf")
        self._lock = threading.Lock()
        os.set_blocking(self._pipe.fileno(), False)
        with contextlib.suppress(OSError):  # the user's pipes have used up their share
            fcntl.fcntl(self._pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def put(self, at: float, step: int, numbers: dict[str, float]) -> None:
        """Takes the metrics of a step: a microsecond."""
        if len(self._waiting) == MOST_WAITING:
            self._dropped += 1
        self._waiting.append((at, step, numbers))

    def flush(self) -> None:
        """Writes to the pipe what it takes now."""
        with self._lock:
            if not self._pipe.closed and not self._write():
                self._pipe.close()
                log.warning("the process of the metric sinks has ended: metrics are sent nowhere from now on")

    def end(self, outcome: Outcome, hurried: bool) -> None:
        """Sends what waits and how the training ended: the last that the sinks get. They may take LAST_SECONDS from now
        on; if `hurried`, HURRIED_SECONDS."""
        self._seconds = HURRIED_SECONDS if hurried else LAST_SECONDS
        now = time.monotonic()
        self._deadline = now + self._seconds
        last = {"outcome": outcome.outcome, "seconds": self._seconds}
        with self._lock:
            self._rest += self._lines(MOST_WAITING) + json.dumps(last).encode() + b"\n"
            while not self._pipe.closed and self._write() and self._rest and time.monotonic() < now + self._seconds / 2:
                select.select([], [self._pipe], [], 0.1)
            self._pipe.close()

    def wait(self) -> None:
        """Lets the sinks finish until the time that `end` gave them is over. A process that has not finished then is
        left to itself."""
        try:
            self._process.wait(max(0.0, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.warning(
                f"the process of the metric sinks has not ended after {self._seconds:g} s, and is not waited for: "
                "the last metrics may be missing"
            )

    def _write(self) -> bool:
        """False if nobody reads the pipe any more."""
        try:
            while rest := self._rest or self._lines(_AT_ONCE):
                self._rest = rest  # should the pipe be full
                self._rest = rest[os.write(self._pipe.fileno(), rest) :]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def _lines(self, most: int) -> bytes:
        taken = []
        with contextlib.suppress(IndexError):
            for _ in range(most):
                taken.append(json.dumps(self._waiting.popleft()))
        if self._dropped and taken:
            taken.append(json.dumps({"dropped": self._dropped}))
            self._dropped = 0
        return "".join(line + "\n" for line in taken).encode()


def start(call: RankArgs, attempt: int, facts: RankFacts, live: HeartbeatWriter) -> Feed | None:
    """Starts the sinks of this node; None where there are none, or another rank of the node starts them. Rank 0 gives
    them what `live` gets."""
    feed = _start(call, attempt, facts)
    if feed is not None and facts.rank == 0:
        live.feed(feed)
    return feed


def _start(call: RankArgs, attempt: int, facts: RankFacts) -> Feed | None:
    if call.metrics is None or facts.local_rank != 0:
        return None
    if facts.rank != 0 and not any(sink.every_node for sink in from_word(call.metrics).values()):
        return None
    words = [str(call.folder.path), str(attempt), "--node", facts.node, "--rank", str(facts.rank)]
    try:
        process = subprocess.Popen(
            [sys.executable, *module_words("slurmopt.job.sinks"), *words, "--sinks", call.metrics],
            stdin=subprocess.PIPE,
            stdout=2,
            bufsize=0,
        )
    except OSError as error:  # no process, no memory: the training may still start
        log.warning(f"the metric sinks cannot be started, and metrics are sent nowhere: {error.strerror}")
        return None
    return Feed(process)
