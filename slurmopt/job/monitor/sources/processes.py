"""Sums what processes have used, from /proc: CPU time, memory, bytes read and written.

The kernel adds the counters of a process that has ended to those of the parent that waited for it. So the sum over all
processes of a step is what counts; it falls only where a process ends whose parent is none of them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurmopt.job.facts import process_tree
from slurmopt.job.monitor.here import Roots
from slurmopt.kernel_files import table, text

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SEARCH_SECONDS = 30.0
"""Between two searches for processes, each of which reads all of /proc; less in the first two minutes."""
_OF_ITS_TIME = 0.25
"""The share of the time since the first search after which the next is due."""
_STEP = b"SLURM_STEP_ID="
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
    """The processes of a step: those of its cgroup, else those below its ranks, and those of all steps that srun has
    started for this job on this node, whose parent is slurmstepd."""

    def __init__(
        self,
        roots: Roots,
        of_cgroup: Callable[[], list[int] | None],
        ranks: Callable[[], list[int]],
        environ: Mapping[str, str],
    ) -> None:
        self._roots, self._of_cgroup, self._ranks = roots, of_cgroup, ranks
        names = ("SLURM_JOB_ID", "SLURMD_NODENAME")
        self._job = [os.fsencode(f"{name}={environ[name]}") for name in names if name in environ]
        self._known: list[int] = []
        self._began = self._searched = float("-inf")

    def pids(self) -> list[int]:
        """All of them, but for this one."""
        pids = self._of_cgroup()
        if pids is None:
            pids = self._found()
        own = os.getpid()
        return [pid for pid in pids if pid != own]

    def _found(self) -> list[int]:
        now = time.monotonic()
        if self._began < 0:
            self._began = now
        if now - self._searched >= min(_SEARCH_SECONDS, _OF_ITS_TIME * (now - self._began)):
            ranks = self._ranks()
            below = (pid for rank in ranks for pid in process_tree.descendants(rank))
            self._known, self._searched = list(dict.fromkeys([*ranks, *below, *self._of_steps()])), now
        return self._known

    def _of_steps(self) -> Iterator[int]:
        """The processes that have the job's and a step's environment, as far as they let themselves be read."""
        if len(self._job) < 2:
            return
        for name in os.listdir(self._roots.proc):
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError):
                words = (self._roots.proc / name / "environ").read_bytes().split(b"\0")
                if all(word in words for word in self._job) and any(word.startswith(_STEP) for word in words):
                    yield int(name)

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
