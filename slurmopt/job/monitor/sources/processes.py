"""Sums what processes have used, from /proc: CPU time, memory, bytes read and written.

The kernel adds the counters of a process that has ended to those of the parent that waited for it. So the sum over all
processes of a step is what counts; it falls only where a process ends whose parent is none of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurmopt.job.facts import process_tree
from slurmopt.job.monitor.here import Roots
from slurmopt.job.monitor.sources.kernel_files import table, text

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SEARCH_SECONDS = 30.0
"""Between two searches for processes below the ranks, each of which reads all of /proc."""
IO = ("rchar", "wchar", "read_bytes", "write_bytes")


@dataclass
class Used:
    """The sums of a group of processes."""

    io: dict[str, int] | None = None
    """Of the fields in IO; None where no process lets itself be read."""
    cpu_seconds: float = 0.0
    memory: int = 0
    """Bytes that belong to one process alone. Shared memory does not count."""


class Processes:
    """The processes of a step: those of its cgroup, else those below its ranks."""

    def __init__(self, roots: Roots, of_cgroup: Callable[[], list[int] | None], ranks: Callable[[], list[int]]) -> None:
        self._roots, self._of_cgroup, self._ranks = roots, of_cgroup, ranks
        self._below: list[int] = []
        self._searched: float | None = None

    def pids(self) -> list[int]:
        """All of them, but for this one."""
        pids = self._of_cgroup()
        if pids is None:
            pids = self._below_ranks()
        own = os.getpid()
        return [pid for pid in pids if pid != own]

    def _below_ranks(self) -> list[int]:
        now = time.monotonic()
        if self._searched is None or now - self._searched >= _SEARCH_SECONDS:
            ranks = self._ranks()
            below = (pid for rank in ranks for pid in process_tree.descendants(rank))
            self._below, self._searched = list(dict.fromkeys([*ranks, *below])), now
        return self._below

    def used(self, pids: Sequence[int], cpu_and_memory: bool) -> Used:
        """What they have used until now; CPU time and memory where the cgroup has no account of them."""
        used = Used()
        for pid in pids:
            folder = f"{self._roots.proc}/{pid}"
            fields = table(f"{folder}/io")
            if "rchar" in fields:
                io = used.io = used.io or dict.fromkeys(IO, 0)
                for name in IO:
                    io[name] += fields.get(name, 0)
            if cpu_and_memory:
                used.cpu_seconds += _cpu_seconds(text(f"{folder}/stat"))
                used.memory += _own_memory(text(f"{folder}/statm"))
        return used


def _cpu_seconds(stat: str | None) -> float:
    """Of the process, and of its children that have ended."""
    fields = (stat or "").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICK if len(fields) > 15 else 0.0


def _own_memory(statm: str | None) -> int:
    fields = (statm or "").split()
    return max(0, int(fields[1]) - int(fields[2])) * _PAGE if len(fields) > 2 else 0
