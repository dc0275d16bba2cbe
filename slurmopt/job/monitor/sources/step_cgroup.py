"""Finds and reads the cgroup that Slurm made for a step, of version 1 or 2."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from slurmopt.job.monitor.here import Roots
from slurmopt.kernel_files import number, table, text

_STEP = re.compile(r"(.*/[^/]+/step_[^/]+)(?:/|$)")
"""In a path of /proc/PID/cgroup: …/job_12/step_0/user/task_0; newer versions name the job by its SLUID."""
_UNLIMITED = 1 << 60
"""Bytes. Version 1 says "no limit" by a number near 2^63."""


class StepCgroup(Protocol):
    """What the kernel accounts for a step. A value is None where this kernel, or this site's Slurm, has no account."""

    def cpu_seconds(self) -> float | None: ...

    def cpu_periods(self) -> Mapping[str, tuple[int, int]]:
        """Of each quota on the step or above it: the periods that it had something to run in, and those in which it was
        throttled."""

    def cpu_quota(self) -> float | None:
        """How many CPUs' time the quotas on the step and above it leave; None without a quota."""

    def memory(self) -> tuple[int, int] | None:
        """Bytes in use without page cache, and of page cache. Shared memory counts as in use."""

    def memory_limit(self) -> int | None:
        """Bytes: the least limit of the step and of what is above it."""

    def charged_peak(self) -> int | None:
        """The most bytes since the step began, page cache included."""

    def oom_kills(self) -> int | None: ...

    def cpus(self) -> int | None:
        """How many CPUs the step may use."""

    def processes(self) -> list[int] | None:
        """All processes of the step; None where the kernel keeps no account of them."""


def find(pid: int, roots: Roots, whole_job: bool = False) -> Version1 | Version2 | None:
    """The cgroup of the process, and with it that of its step, or of its whole job on this node, as a step; None where
    the kernel has no cgroups."""
    lines = [line.split(":", 2) for line in (text(roots.proc / str(pid) / "cgroup") or "").splitlines()]
    paths = {names: path for _, names, path in (line for line in lines if len(line) == 3)}
    if set(paths) == {""}:
        return Version2(roots.cgroup, paths[""], whole_job)
    return Version1(roots.cgroup, paths, whole_job) if paths else None


def _below(root: Path, path: str) -> Path:
    return root / path.strip("/")


def _upward(place: Path, root: Path) -> Iterator[Path]:
    """`place` and the folders above it, down to `root`."""
    while place.is_relative_to(root):
        yield place
        place = place.parent


def _step(path: str, whole_job: bool) -> str | None:
    match = _STEP.match(path)
    if match is None:
        return None
    return match[1].rpartition("/")[0] if whole_job else match[1]


def _all_processes(folder: Path) -> list[int] | None:
    if not folder.is_dir():
        return None
    pids: list[int] = []
    for place, _, _ in os.walk(folder):
        pids += [int(word) for word in (text(f"{place}/cgroup.procs") or "").split() if word.isdecimal()]
    return pids


def _count(cpus: str | None) -> int | None:
    """How many CPUs a list such as 0-3,8 has."""
    total = 0
    for part in (cpus or "").strip().split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return None
        total += int(last or first) - int(first) + 1
    return total


class Version2:
    """The unified hierarchy."""

    def __init__(self, root: Path, path: str, whole_job: bool = False) -> None:
        self._root, self._own = root, _below(root, path)
        step = _step(path, whole_job)
        self._step = _below(root, step) if step is not None and "slurm" in path else None

    def cpu_seconds(self) -> float | None:
        usage = table(self._step / "cpu.stat").get("usage_usec") if self._step else None
        return None if usage is None else usage / 1e6

    def cpu_periods(self) -> Mapping[str, tuple[int, int]]:
        found = {}
        for place in _upward(self._own, self._root):
            if (text(place / "cpu.max") or "max").startswith("max"):
                continue
            stat = table(place / "cpu.stat")
            if "nr_periods" in stat:
                found[str(place)] = stat["nr_periods"], stat.get("nr_throttled", 0)
        return found

    def cpu_quota(self) -> float | None:
        words = [(text(place / "cpu.max") or "max").split() for place in _upward(self._own, self._root)]
        quotas = [int(each[0]) / int(each[1]) for each in words if len(each) == 2 and each[0] != "max"]
        return min(quotas, default=None)

    def memory(self) -> tuple[int, int] | None:
        used = number(self._step / "memory.current") if self._step else None
        if self._step is None or used is None:
            return None
        stat = table(self._step / "memory.stat")
        cache = max(0, stat.get("file", 0) - stat.get("shmem", 0))
        return max(0, used - cache), cache

    def memory_limit(self) -> int | None:
        limits = [number(place / "memory.max") for place in _upward(self._step or self._own, self._root)]
        return min((limit for limit in limits if limit is not None), default=None)

    def charged_peak(self) -> int | None:
        return number(self._step / "memory.peak") if self._step else None

    def oom_kills(self) -> int | None:
        return table(self._step / "memory.events").get("oom_kill") if self._step else None

    def cpus(self) -> int | None:
        return _count(text(self._step / "cpuset.cpus.effective")) if self._step else None

    def processes(self) -> list[int] | None:
        return _all_processes(self._step) if self._step else None


class Version1:
    """A hierarchy for each controller; which ones have a folder for the step is a choice of the site."""

    def __init__(self, root: Path, paths: Mapping[str, str], whole_job: bool = False) -> None:
        self._places: dict[str, tuple[Path, Path, Path | None]] = {}
        """Controller → the top of its hierarchy, the folder of the process, that of its step."""
        for names, path in paths.items():
            for name in names.split(","):
                top = root / name if (root / name).is_dir() else root / names
                step = _step(path, whole_job)
                its_step = _below(top, step) if step is not None and "slurm" in path else None
                self._places[name] = top, _below(top, path), its_step

    def _of_step(self, controller: str, file: str) -> Path | None:
        step = self._places.get(controller, (None, None, None))[2]
        return None if step is None else step / file

    def cpu_seconds(self) -> float | None:
        path = self._of_step("cpuacct", "cpuacct.usage")
        usage = None if path is None else number(path)
        return None if usage is None else usage / 1e9

    def cpu_periods(self) -> Mapping[str, tuple[int, int]]:
        if "cpu" not in self._places:
            return {}
        top, own, _ = self._places["cpu"]
        found = {}
        for place in _upward(own, top):
            stat = table(place / "cpu.stat")
            if (number(place / "cpu.cfs_quota_us") or -1) > 0 and "nr_periods" in stat:
                found[str(place)] = stat["nr_periods"], stat.get("nr_throttled", 0)
        return found

    def cpu_quota(self) -> float | None:
        if "cpu" not in self._places:
            return None
        top, own, _ = self._places["cpu"]
        pairs = [(number(p / "cpu.cfs_quota_us"), number(p / "cpu.cfs_period_us")) for p in _upward(own, top)]
        return min((quota / period for quota, period in pairs if quota and period and quota > 0), default=None)

    def memory(self) -> tuple[int, int] | None:
        path = self._of_step("memory", "memory.stat")
        stat = {} if path is None else table(path)
        if "total_rss" not in stat:
            return None
        shared = stat.get("total_shmem", 0)
        return stat["total_rss"] + shared, max(0, stat.get("total_cache", 0) - shared)

    def memory_limit(self) -> int | None:
        if "memory" not in self._places:
            return None
        top, own, _ = self._places["memory"]
        limits = [number(place / "memory.limit_in_bytes") for place in _upward(own, top)]
        return min((limit for limit in limits if limit is not None and limit < _UNLIMITED), default=None)

    def charged_peak(self) -> int | None:
        path = self._of_step("memory", "memory.max_usage_in_bytes")
        return None if path is None else number(path)

    def oom_kills(self) -> int | None:
        path = self._of_step("memory", "memory.oom_control")
        if path is None:
            return None
        counts = [table(place / "memory.oom_control").get("oom_kill") for place in self._tasks(path.parent)]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    @staticmethod
    def _tasks(step: Path) -> list[Path]:
        """The step and the folders in it: version 1 counts a kill where the limit was, or where the process was."""
        return [Path(place) for place, _, _ in os.walk(step)]

    def cpus(self) -> int | None:
        path = self._of_step("cpuset", "cpuset.cpus")
        return None if path is None else _count(text(path))

    def processes(self) -> list[int] | None:
        for controller in ("freezer", "memory", "cpuacct", "cpuset"):
            path = self._of_step(controller, "cgroup.procs")
            if path is not None and (pids := _all_processes(path.parent)) is not None:
                return pids
        return None
