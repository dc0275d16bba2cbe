"""Finds out which rank a process is that asks for a configuration."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_LAUNCHED = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "GROUP_RANK",
    "TORCHELASTIC_RUN_ID",
    "CROSS_RANK",
    "OMPI_COMM_WORLD_RANK",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
)
"""Variables that launchers (torchrun, DeepSpeed, mpirun, srun) set in the ranks that they start. A process with other
values than its ancestor was launched by it; one with the same values helps it, such as a worker of a DataLoader."""
_NSYS = "NSYS_PROFILING_SESSION_ID"
_FORGOTTEN_AFTER = 30.0
"""Seconds. Each process asks every five seconds."""


@dataclass
class _Asker:
    ancestors: tuple[int, ...]
    launched: tuple[str | None, ...]
    rank: int | None
    under_nsys: bool
    last: float


def environment_of(pid: int) -> dict[str, str]:
    """The environment that a process began with; empty if it cannot be read."""
    try:
        with open(f"/proc/{pid}/environ", encoding="utf-8", errors="surrogateescape") as file:
            return dict(word.split("=", 1) for word in file.read().split("\0") if "=" in word)
    except OSError:
        return {}


class Askers:
    """The processes of a command that have asked lately. `rank`: that of slurmopt's own process, for a command that no
    launcher gives another one."""

    def __init__(self, rank: int, environment: Callable[[int], Mapping[str, str]] = environment_of) -> None:
        self._rank, self._environment = rank, environment
        self._askers: dict[int, _Asker] = {}

    def add(self, pid: int, ancestors: tuple[int, ...]) -> None:
        """Notes that a process has asked."""
        now = time.monotonic()
        self._askers = {pid: asker for pid, asker in self._askers.items() if now - asker.last < _FORGOTTEN_AFTER}
        known = self._askers.get(pid)
        if known is not None and known.ancestors == ancestors:
            known.last = now
            return
        variables = self._environment(pid)
        launched = tuple(variables.get(name) for name in _LAUNCHED)
        self._askers[pid] = _Asker(ancestors, launched, self._rank_in(variables), _NSYS in variables, now)

    def _rank_in(self, variables: Mapping[str, str]) -> int | None:
        word = variables.get("RANK", variables.get("OMPI_COMM_WORLD_RANK"))
        if word is None:
            return self._rank
        return int(word) if word.isascii() and word.isdecimal() else None

    def rank_of(self, pid: int) -> int | None:
        """The rank that the process is; None for a launcher, and for a process that helps a rank."""
        asker = self._askers[pid]
        if any(self._is_of(above, asker.launched) for above in asker.ancestors):
            return None
        has_launched = any(
            pid in other.ancestors and other.launched != asker.launched for other in self._askers.values()
        )
        return None if has_launched else asker.rank

    def _is_of(self, pid: int, launched: tuple[str | None, ...]) -> bool:
        return pid in self._askers and self._askers[pid].launched == launched

    def is_under_nsys(self, pid: int) -> bool:
        """Whether Nsight Systems traces the process already: CUPTI has one subscriber."""
        return self._askers[pid].under_nsys


class OneProcess(Askers):
    """A function runs in the process of its rank: whatever else asks helps it."""

    def rank_of(self, pid: int) -> int | None:
        return self._rank if pid == os.getpid() else None
