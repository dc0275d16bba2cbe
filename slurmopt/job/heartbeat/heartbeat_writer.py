"""Writes a rank's heartbeat file; `progress` in this process and its children feeds it.

Children (a command's own Python) send what they report to a socket of the rank's process instead of writing the file
themselves: two writers of one file would lose each other's steps.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurmopt import log
from slurmopt.job import signals
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.job.heartbeat.activity import EVERY, Activity
from slurmopt.job.heartbeat.device_metrics import DeviceMetrics
from slurmopt.job.watchdog.stacks import Stacks
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.open_folders import held
from slurmopt.run_folder.outcome import Outcome

PROGRESS = "SLURMOPT_PROGRESS"
"""Environment variable: the abstract socket's name, for the children."""
_REPORTS_AT_ONCE = 100
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid, as the kernel vouches for them
_TOLD = b"told"
"""What a child says that has learned that it is to leave."""
_AT_MOST_EVERY = 1.0
_IDLE_SECONDS = 60.0
"""Without a step for so long, other signs of life are looked for."""
_MOST_PHASES = 32
_LONGEST_PHASE = 64
_LAST_NUMBERS = 1.0
"""Seconds that the end of a rank waits for metrics which a GPU still computes."""
_NEWS_PER_SECOND = 100  # of all ranks together


class HeartbeatWriter:
    """Keeps the heartbeat file of one rank true until `end`, and looks for what ends the rank from outside until
    `close`. Times are seconds."""

    def __init__(
        self, path: Path, facts: RankFacts, every: float, watch: Callable[[], None], stacks: Stacks | None = None
    ) -> None:
        """`watch` is called with every heartbeat; `stacks`: None where nobody looks out for hangs."""
        self.pid = os.getpid()
        self.local_rank = facts.local_rank
        self._path = path
        self._every = every
        # A thousand ranks that each tell of every step once a second would keep the file system's servers busy.
        self._news_every = min(max(_AT_MOST_EVERY, facts.world_size / _NEWS_PER_SECOND), max(_AT_MOST_EVERY, every))
        self._watch = watch
        self._stacks = stacks
        self._heartbeat = Heartbeat(rank=facts.rank, world_size=facts.world_size, node=facts.node, pid=self.pid)
        self._heartbeat.phases["starting"] = self._heartbeat.started
        # Re-entrant: the second SIGTERM ends the rank from inside a signal handler.
        self._lock = threading.RLock()  # of the heartbeat's fields: held for microseconds, for training waits for it
        self._writing = threading.RLock()  # of the file
        self._news = False
        self._stepped = False
        self._activity = None if stacks is None else Activity(facts)
        self._moved = self._looked = time.monotonic()
        self._hurry = False
        self._closed = self._is_flooded = False
        self._complained = self._has_folder = False
        self.unwritten: OSError | None = None
        """Why the last heartbeat could not be written; None where it was."""
        self._numbers = DeviceMetrics()
        self._inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._name = f"slurmopt-{self.pid}-{os.urandom(8).hex()}"

    def start(self) -> None:
        """Writes the first heartbeat, and goes on doing so from a thread."""
        self._write(self._heartbeat)  # a folder that cannot be written may be back for the next one
        self._open_inbox()
        os.environ[PROGRESS] = self._name
        if self._stacks is not None:
            self._stacks.wind()
        threading.Thread(target=self._keep, name="slurmopt-heartbeat", daemon=True).start()

    @property
    def phase(self) -> str:
        """What the rank does now."""
        return self._heartbeat.phase

    def enter(self, phase: str) -> None:
        """Says what the rank does now: one of the phases of a heartbeat, or a name of the training's own."""
        with self._lock:
            beat = self._heartbeat
            beat.phase = phase[:_LONGEST_PHASE]
            if len(beat.phases) < _MOST_PHASES:
                beat.phases.setdefault(beat.phase, time.time())
            self._news = True

    def note_asked(self, who: str) -> None:
        """Says at once who asked the rank to save and stop: `USR1`, `TERM` or `file`. The first one stands."""
        with self._lock:
            self._heartbeat.asked = self._heartbeat.asked or who
        self._beat_now()

    def tell_address(self, address: str) -> None:
        """Says at once where this node answers the others' health checks."""
        with self._lock:
            self._heartbeat.address = address
        self._beat_now()

    def tell_awaited(self, what: str | None) -> None:
        """Says at once what this rank waits for before it starts its task; None: for nothing any more."""
        with self._lock:
            self._heartbeat.awaits = what
        self._beat_now()

    def _beat_now(self) -> None:
        self._hurry = True
        with contextlib.suppress(OSError):  # its queue is full: the thread is awake
            self._inbox.sendto(b"", "\0" + self._name)

    def report(self, step: int, total: int | None, metrics: dict[str, Any]) -> None:
        """Takes a step in; the thread writes it within about a second, where there are a hundred ranks at most. Of
        `metrics` a GPU may still compute some: they follow once they are there."""
        numbers = self._numbers.take(metrics) if metrics else None
        with self._lock:
            beat = self._heartbeat
            if beat.step is None or step > beat.step:
                beat.step_time = time.time()
                if beat.step is None:
                    beat.first_step, beat.first_step_time = step, beat.step_time
                self._stepped = True
            beat.step = step
            if total is not None:
                beat.total_steps = total
            if numbers:
                beat.metrics.update(numbers)
            self._news = True

    def catch_up(self) -> None:
        """Takes in what the children have said until now."""
        self._take_in()

    def moved(self, count: int) -> None:
        """Adds to the bytes that were moved; it is written as steps are."""
        with self._lock:
            self._heartbeat.moved_bytes += count
            self._news = True

    def end(self, outcome: Outcome) -> None:
        """Writes the last heartbeat, with the outcome; nothing is written after it."""
        with self._writing, self._lock:
            if self._heartbeat.outcome is not None:
                return
            self._take_in()  # the last step of a command that has just ended
            self._heartbeat.metrics.update(self._numbers.come(_LAST_NUMBERS))
            self._heartbeat.phase = "ended"
            self._heartbeat.phases["ended"] = time.time()
            self._heartbeat.outcome = outcome.as_dict()
            self._news = self._hurry = False
            self._write(self._heartbeat)

    def close(self) -> None:
        """Ends the looks. Called once the rank waits for nobody any more."""
        self._closed = True

    def _open_inbox(self) -> None:
        self._inbox.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._inbox.bind("\0" + self._name)

    def _keep(self) -> None:
        written = time.monotonic()
        while not self._closed:
            if select.select([self._inbox], [], [], _AT_MOST_EVERY)[0]:
                self._take_in()
            if self._is_flooded:
                self._is_flooded = False
                time.sleep(_AT_MOST_EVERY / 10)
            age = time.monotonic() - written
            if age >= self._every or (self._news and age >= self._news_every) or self._hurry:
                written = time.monotonic()
                if self._heartbeat.outcome is None:
                    self._answer()
                    self._beat()
                elif self._closed:
                    return
                with self._complaining("the run folder cannot be looked at"):
                    self._watch()

    def _answer(self) -> None:
        """Looks for the lookout's request where it may concern this rank: it made no step since its last heartbeat.
        Before the heartbeat, so that the lookout knows by that what has been done."""
        if self._stacks is None:
            return
        self._stacks.wind()
        stepped, self._stepped = self._stepped, False
        if not stepped:
            beat = self._heartbeat
            self._stacks.answer(beat.rank, beat.step, beat.phase)
        self._look_for_life(stepped)

    def _look_for_life(self, stepped: bool) -> None:
        """An evaluation or a compilation may take long, and say nothing."""
        now = time.monotonic()
        if stepped:
            self._moved = now
        if self._activity is None or now - self._moved < _IDLE_SECONDS:
            return
        if self._looked < self._moved:
            self._activity.forget()
        elif now - self._looked < EVERY:
            return
        self._looked = now
        if self._activity.seen():
            self._heartbeat.active += 1

    def _take_in(self) -> None:
        """The reports that wait in the inbox. Any user may fill it: no more than so many at once, and a pause then."""
        with self._lock, contextlib.suppress(BlockingIOError):
            for _ in range(_REPORTS_AT_ONCE):
                data, ancillary, _, _ = self._inbox.recvmsg(65536, socket.CMSG_SPACE(_CREDENTIALS.size))
                if _sender(ancillary) == os.getuid():  # abstract sockets are open to every user of the node
                    self._hear(data)
            self._is_flooded = True

    def _hear(self, data: bytes) -> None:
        if data == _TOLD:
            signals.tell()
            return
        with contextlib.suppress(ValueError, TypeError, KeyError):  # not one of ours
            self._take_report(json.loads(data))

    def _take_report(self, report: Any) -> None:
        if isinstance(report, dict):
            if (phase := str(report["phase"])) != "ended":
                self.enter(phase)
        else:
            self.report(*report)

    def _beat(self) -> None:
        with self._writing:
            with self._lock:
                self._news = self._hurry = False
                beat = self._heartbeat
                beat.metrics.update(self._numbers.come())
                now = replace(beat, metrics=dict(beat.metrics), phases=dict(beat.phases))
            if now.outcome is None:
                self._write(now)

    def _write(self, beat: Heartbeat) -> None:
        with self._complaining("the heartbeat cannot be written"):
            try:
                if not self._has_folder:
                    held(self._path.parent).mkdir(mode=0o750, parents=True, exist_ok=True)
                    self._has_folder = True
                beat.write(self._path)
                self.unwritten = None
            except OSError as error:
                self.unwritten = error
                raise

    @contextlib.contextmanager
    def _complaining(self, what: str) -> Iterator[None]:
        """A full or absent file system must end neither the training nor the heartbeats: it is said once."""
        try:
            yield
        except OSError as error:
            if not self._complained:
                with contextlib.suppress(OSError):  # the log is on that file system too
                    log.warning(f"{what}: {error}")
            self._complained = True


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return int(_CREDENTIALS.unpack(data)[1])
    return None


class ChildReports:
    """In a child of the rank's process: sends it the steps, a few times a second at most, and the last one at exit."""

    _AT_MOST_EVERY = 0.2
    _PATIENCE = 0.2
    """Seconds for what is told once: the kernel queues ten, and the reader needs microseconds for one."""

    def __init__(self, name: str) -> None:
        self._address = "\0" + name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sent = float("-inf")
        self.phase = "running"
        self._waiting: tuple[Any, ...] | None = None
        self._numbers = DeviceMetrics()

    def report(self, step: int, total: int | None, metrics: dict[str, Any]) -> None:
        earlier = {} if self._waiting is None else self._waiting[2]
        self._last = step, total
        self._waiting = (step, total, {**earlier, **self._numbers.take(metrics)})
        if time.monotonic() - self._sent >= self._AT_MOST_EVERY:
            self.flush()

    def enter(self, phase: str) -> None:
        """Says what the training does now."""
        self.phase = phase
        self.flush(self._PATIENCE)
        self._send(json.dumps({"phase": phase}).encode(), self._PATIENCE)

    def close(self) -> None:
        """At the end of the process: with the numbers that a GPU has not told yet."""
        if late := self._numbers.come(_LAST_NUMBERS):
            self._waiting = (*self._last, {**(self._waiting[2] if self._waiting else {}), **late})
        self.flush(self._PATIENCE)

    def flush(self, patience: float = 0.0) -> None:
        """Sends what waits. A step does not wait for a queue that another user of the node may keep full: the next one
        tries again."""
        if self._waiting is None:
            return
        self._sent = time.monotonic()
        if self._send(json.dumps(self._waiting).encode(), patience):
            self._waiting = None

    def tell(self) -> None:
        """This child has learned that it is to leave."""
        self._send(_TOLD, self._PATIENCE)

    def _send(self, data: bytes, patience: float) -> bool:
        """Whether nothing is left to be sent."""
        self._socket.settimeout(patience)
        try:
            self._socket.sendto(data, self._address)
        except (BlockingIOError, TimeoutError):
            return False
        except OSError:
            pass  # the rank's process has ended: there is nobody left to tell
        return True
