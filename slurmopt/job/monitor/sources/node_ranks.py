"""Reads the heartbeats of the ranks of this node."""

from __future__ import annotations

import contextlib
import threading
import time

from slurmopt.job.monitor.here import Here
from slurmopt.run_folder import heartbeat
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.json_values import as_int

_EVERY = 8.0
_PER_SECOND = 100
"""Heartbeats that all nodes of a job read together; they lie on a shared file system."""


class NodeRanks:
    """The newest heartbeat of each rank of the node. Several sources share it."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self._beats: dict[int, Heartbeat] = {}
        self._read: float | None = None
        self._lock = threading.Lock()

    def beats(self) -> dict[int, Heartbeat]:
        """Rank → its heartbeat, some seconds old at most."""
        with self._lock:
            if self._read is None or time.monotonic() - self._read >= self._every() / 2:  # in time for the next row
                for rank in self._here.ranks:
                    self._look(rank)
                self._read = time.monotonic()
            return dict(self._beats)

    def forget(self) -> None:
        """The next `beats` reads them again, however recent they are."""
        with self._lock:
            self._read = None

    def _every(self) -> float:
        """Seconds between the readings of a source, which several sources share; more in a large job."""
        ranks = max((as_int(beat.world_size) or 1 for beat in self._beats.values()), default=1)
        return max(min(_EVERY, self._here.every), ranks / _PER_SECOND if ranks > _PER_SECOND else 0.0)

    def _look(self, rank: int) -> None:
        path = self._here.run.heartbeat(self._here.attempt, rank)
        with contextlib.suppress(OSError):  # the file system is away: the last one stands
            beat = heartbeat.read(path)
            if beat is not None and beat.node == self._here.node:
                self._beats[rank] = beat

    def pids(self) -> list[int]:
        """The processes of the ranks."""
        told = [as_int(beat.pid) for beat in self.beats().values()]
        return list(dict.fromkeys([self._here.pid, *(pid for pid in told if pid)]))
