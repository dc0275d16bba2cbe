"""The main memory of the ranks of a node, and of the processes below them, such as the workers of a DataLoader."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from slurmopt.job.facts import process_tree
from slurmopt.job.facts.process_memory import proportional
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.json_values import as_int

_EVERY = 60.0
"""Seconds."""
_OF_A_CPU = 0.002
"""The share of a CPU that the readings may take. The kernel goes over all pages of a process: 10 ms for each GB."""


class RankMemory:
    """The proportional set size (PSS): a page that several processes map counts to each in parts, so that workers that
    share the dataset of their rank are not counted as if each had a copy."""

    def __init__(self, proc: Path) -> None:
        self._proc = str(proc)
        self._due = float("-inf")

    def read(self, beats: Mapping[int, Heartbeat]) -> dict[str, float]:
        """Column → bytes, once a minute, or less often of large processes; empty in between."""
        began = time.monotonic()
        if began < self._due:
            return {}
        values = dict(pair for rank, beat in beats.items() for pair in self._of(rank, beat))
        if values:
            ended = time.monotonic()
            self._due = ended + max(_EVERY, (ended - began) / _OF_A_CPU)
        return values

    def _of(self, rank: int, beat: Heartbeat) -> Iterator[tuple[str, float]]:
        pid = as_int(beat.pid)
        own = None if pid is None or beat.outcome is not None else proportional(pid, self._proc)
        if pid is None or own is None:
            return
        yield f"rank{rank}.memory", own
        below = (proportional(each, self._proc) for each in process_tree.descendants(pid))
        yield f"rank{rank}.workers_memory", sum(size for size in below if size is not None)
