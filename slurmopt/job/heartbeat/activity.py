"""Detects that a rank without progress reports is alive, by its processes' I/O and its GPUs' memory traffic.

How busy a GPU says it is would be no sign: a collective that waits for a rank which never comes keeps it at 100 %,
while its memory is idle.
"""

from __future__ import annotations

import os
import time
from typing import Any

from slurmopt.job.facts import gpus, process_tree
from slurmopt.job.facts.rank_facts import RankFacts

EVERY = 30.0
"""Seconds between two measurements, each of which reads all of /proc."""
_LEAST_BYTES = 1 << 20
"""Bytes per second. Heartbeats, logs and monitoring tools stay far below."""
_LEAST_PERCENT = 5
"""Percent of the time in which the GPU's memory was read or written."""


class Activity:
    """The activity of this process, its descendants, and the GPUs of this rank."""

    def __init__(self, facts: RankFacts) -> None:
        self._facts = facts
        self._bytes: dict[int, int] = {}
        self._looked: float | None = None
        self._handles: list[Any] | None = None
        self._nvml: Any = None

    def forget(self) -> None:
        """Discards the last measurement."""
        self._looked = None

    def seen(self) -> bool:
        """Whether there was activity since the last call. The first call only starts the measurement."""
        now, own = time.monotonic(), os.getpid()
        before, since = self._bytes, self._looked
        own_bytes = _bytes_of(own)
        self._bytes = {pid: _bytes_of(pid) for pid in process_tree.descendants(own)}
        moved = sum(max(0, count - before.get(pid, 0)) for pid, count in self._bytes.items())
        moved += own_bytes - before.get(own, own_bytes)
        self._bytes[own] = _bytes_of(own)  # without what this look itself has read
        self._looked = now
        if since is None or now <= since:
            return False
        return moved >= _LEAST_BYTES * (now - since) or self._gpu_is_busy()

    def _gpu_is_busy(self) -> bool:
        if self._handles is None:
            self._handles = self._find_gpus()
        try:
            return any(
                self._nvml.nvmlDeviceGetUtilizationRates(handle).memory >= _LEAST_PERCENT for handle in self._handles
            )
        except self._nvml.NVMLError:  # this kind of GPU, or a slice of one, does not tell
            self._handles = []
            return False

    def _find_gpus(self) -> list[Any]:
        words = gpus.of_nvidia(os.environ)
        if not words:
            return []
        self._nvml = gpus.nvml()
        if self._nvml is None:
            return []
        try:
            self._nvml.nvmlInit()
            return [gpus.device_handle(self._nvml, word) for word in gpus.share(words, self._facts)]
        except self._nvml.NVMLError:
            return []


def _bytes_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            fields = dict(line.split(b": ") for line in file.read().splitlines())
        return int(fields[b"rchar"]) + int(fields[b"wchar"])
    except (OSError, KeyError, ValueError):  # it has ended, or belongs to somebody else
        return 0
