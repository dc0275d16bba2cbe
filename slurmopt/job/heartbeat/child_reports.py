"""Carries the reports of a rank's children to the rank's process, over a datagram socket.

A command's own Python is a child. Two writers of one heartbeat file would lose each other's steps, so only the rank's
process writes it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from slurmopt.job.heartbeat import compilations
from slurmopt.job.heartbeat.activity_clock import FIRST_STEP, RUNNING
from slurmopt.job.heartbeat.training_meter import TrainingMeter

PROGRESS = "SLURMOPT_PROGRESS"
"""Environment variable: the abstract socket's name, for the children."""
EVERY_STEP = "SLURMOPT_EVERY_STEP"
"""Environment variable, set where metric sinks take the metrics of every step and not only the newest."""
STOP_NOTICED = b"told"
"""What a child sends once it has learned that it is to stop."""
LAST_METRICS = 1.0
"""Seconds that the end of a process waits for metrics which a GPU still computes."""
MEASURED = "measured"
"""The key of a message with what a child has measured since it began: later messages contain all of the earlier."""
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid, as the kernel vouches for them
_REPORTS_AT_ONCE = 100
_MOST_STEPS = 10_000
"""Steps that wait to be sent; the oldest are dropped where the rank's process does not read."""
_LARGEST = 60_000
"""Bytes of a datagram; the rank's end reads up to 65,536."""


class Inbox:
    """The rank's end: reports from processes of the same user."""

    def __init__(self) -> None:
        self.name = f"slurmopt-{os.getpid()}-{os.urandom(8).hex()}"
        self.is_flooded = False
        """Whether more had come than is read at once: any user of the node may send."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def open(self) -> None:
        """Begins to receive."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind("\0" + self.name)

    def wait(self, seconds: float) -> bool:
        """Whether there is something to read, after `seconds` at the latest."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def wake(self) -> None:
        """Ends a `wait` in another thread."""
        with contextlib.suppress(OSError):  # the queue is full: that thread is awake
            self._socket.sendto(b"", "\0" + self.name)

    def reports(self) -> Iterator[bytes]:
        """The reports that wait, up to a limit; sets `is_flooded` if the limit was reached."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_REPORTS_AT_ONCE):
                data, ancillary, _, _ = self._socket.recvmsg(65536, socket.CMSG_SPACE(_CREDENTIALS.size))
                if _sender(ancillary) == os.getuid():  # abstract sockets are open to every user of the node
                    yield data
            self.is_flooded = True


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    """The user id of the sending process."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return int(_CREDENTIALS.unpack(data)[1])
    return None


def _in_one(step: int, total: int | None, numbers: dict[str, float]) -> bytes:
    """A step as one datagram; of thousands of metrics the first ones, as the step itself must arrive."""
    while len(data := json.dumps((step, total, numbers)).encode()) > _LARGEST and numbers:
        numbers = dict(islice(numbers.items(), len(numbers) // 2))
    return data


def _is_helper() -> bool:
    """Whether `multiprocessing` started this process, as it does a DataLoader's workers: without steps of its own it is
    not the training, though what it loads data with may have phases."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


class ChildReports:
    """The child's end: sends steps to the rank's process, a few times a second at most, and the last one at exit."""

    _AT_MOST_EVERY = 0.2
    _TIMEOUT = 0.2
    """Seconds for messages that are sent once. The kernel queues ten; reading one takes microseconds."""

    def __init__(self, name: str) -> None:
        self._address = "\0" + name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sent = float("-inf")
        self._id = os.urandom(8).hex()
        self.phase = RUNNING
        self.meter = TrainingMeter(FIRST_STEP)
        self._waiting: tuple[Any, ...] | None = None
        self._last: tuple[int, int | None] | None = None
        self._steps: deque[str] = deque(maxlen=_MOST_STEPS)
        if os.environ.get(EVERY_STEP):
            self.meter.metrics.arrived = self._arrived

    def _arrived(self, at: float, step: int, numbers: dict[str, float]) -> None:
        self._steps.append(json.dumps((round(at, 3), step, numbers)))

    def report(self, step: int, total: int | None, metrics: dict[str, Any]) -> None:
        numbers = self.meter.stepped(step, metrics)
        compilations.watch(self)
        self._last = step, total
        self._waiting = (step, total, numbers if self._waiting is None else {**self._waiting[2], **numbers})
        if time.monotonic() - self._sent >= self._AT_MOST_EVERY:
            self.flush()

    def show(self, phase: str) -> None:
        """Reports what the training does now."""
        self.phase = phase
        self.flush(self._TIMEOUT)
        self._send(json.dumps({"phase": phase}).encode(), self._TIMEOUT)
        self._tell_measured(self._TIMEOUT)

    def close(self) -> None:
        """Sends the last step at the end of the process, with the metrics that a GPU still computes."""
        if (late := self.meter.metrics.come(LAST_METRICS)) and self._last is not None:
            self._waiting = (*self._last, {**(self._waiting[2] if self._waiting else {}), **late})
        self.flush(self._TIMEOUT)
        if self._last is not None:
            self._tell_measured(self._TIMEOUT, has_ended=True)

    def flush(self, timeout: float = 0.0) -> None:
        """Sends the waiting report. A step does not wait for the queue, which another user of the node may keep full;
        the next step tries again."""
        if self._waiting is None and not self._steps:
            return
        self._sent = time.monotonic()
        if self._waiting is not None and self._send(_in_one(*self._waiting), timeout):
            self._waiting = None
            self._tell_measured(timeout)
        while self._steps and self._send_steps(timeout):
            pass

    def _tell_measured(self, timeout: float, has_ended: bool = False) -> None:
        """Sends all that was measured so far: what is lost on the way, the next message makes good. In a message of its
        own, for a rank of an earlier version would take no longer form of a step's."""
        if self._last is None and _is_helper():
            return
        clock = self.meter.clock
        measured = {
            "id": self._id,
            "now": None if has_ended else clock.activity,
            "spent": clock.spent(),
            "counted": self.meter.counters.totals(),
        }
        self._send(json.dumps({MEASURED: measured}).encode(), timeout)

    def _send_steps(self, timeout: float) -> bool:
        """Sends as many of the waiting steps as one datagram takes, oldest first. False if the queue stayed full."""
        sent: list[str] = []
        size = len('{"steps": []}')
        for each in self._steps:
            size += len(each) + 1
            if sent and size > _LARGEST:
                break
            sent.append(each)
        if not self._send(f'{{"steps": [{",".join(sent)}]}}'.encode(), timeout):
            return False
        for _ in sent:
            self._steps.popleft()
        return True

    def tell(self) -> None:
        """Reports that this child knows that it is to stop."""
        self._send(STOP_NOTICED, self._TIMEOUT)

    def _send(self, data: bytes, timeout: float) -> bool:
        """Sends one datagram. False if the queue stayed full."""
        self._socket.settimeout(timeout)
        try:
            self._socket.sendto(data, self._address)
        except (BlockingIOError, TimeoutError):
            return False
        except OSError:
            pass  # the rank's process has ended: there is nobody left to tell
        return True
