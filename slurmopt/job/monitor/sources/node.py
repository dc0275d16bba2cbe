"""The source `node`: CPUs, memory and files of the step, from its cgroup, else from its processes in /proc."""

from __future__ import annotations

import os
import time
from typing import Any

from slurmopt.job.monitor.here import Here
from slurmopt.job.monitor.rates import Rates
from slurmopt.job.monitor.sources import step_cgroup
from slurmopt.job.monitor.sources.node_ranks import NodeRanks
from slurmopt.job.monitor.sources.processes import Processes
from slurmopt.kernel_files import table
from slurmopt.run_folder.series.series_format import NOT_ALLOWED, NOT_MEASURED, NOT_SUPPORTED

_IO_COLUMNS = {
    "rchar": "node.io_read",
    "wchar": "node.io_write",
    "read_bytes": "node.disk_read",
    "write_bytes": "node.disk_write",
}


def open_source(here: Here, ranks: NodeRanks) -> NodeSource:
    """The source of this node."""
    return NodeSource(here, ranks)


class NodeSource:
    """CPUs, memory and files of the step on this node."""

    name = "node"

    def __init__(self, here: Here, ranks: NodeRanks) -> None:
        self._here = here
        self._cgroup = step_cgroup.find(here.pid, here.roots, here.whole_job)
        of_cgroup = self._cgroup.processes if self._cgroup is not None else lambda: None
        self._processes = Processes(here.roots, of_cgroup, ranks.pids, here.environ)
        self._rates = Rates()
        self._periods: dict[str, tuple[int, int]] = {}
        self._oom_kills: int | None = None
        self._events: list[dict[str, Any]] = []
        self._absent: dict[str, str] = {}

    def facts(self) -> dict[str, Any]:
        """The CPUs of the step and the limit on its memory (null: none), and the memory of the node."""
        limit = None if self._cgroup is None else self._cgroup.memory_limit()
        host = table(self._here.roots.proc / "meminfo").get("MemTotal")
        return {"cpus": self._cpus(), "memory_limit": limit, "host_memory": None if host is None else host * 1024}

    def _cpus(self) -> int:
        own = None if self._cgroup is None else self._cgroup.cpus()
        on_node = "SLURMD_NODENAME" in self._here.environ
        told = self._here.environ.get("SLURM_CPUS_ON_NODE", "") if on_node else ""
        return own or (int(told) if told.isdecimal() else 0) or len(os.sched_getaffinity(0))

    def absent(self) -> dict[str, str]:
        return self._absent

    def events(self) -> list[dict[str, Any]]:
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Holds nothing open."""

    def read(self) -> dict[str, float]:
        values: dict[str, float] = {}
        self._absent = {}
        cgroup = self._cgroup
        cpu = None if cgroup is None else cgroup.cpu_seconds()
        memory = None if cgroup is None else cgroup.memory()
        used = self._processes.used(self._processes.pids(), cpu is None or memory is None)
        counters: dict[str, float] = {"node.cpu": used.cpu_seconds if cpu is None else cpu}
        if used.io is None:
            self._absent |= dict.fromkeys(_IO_COLUMNS.values(), NOT_ALLOWED)
        else:
            counters |= {column: used.io[field] for field, column in _IO_COLUMNS.items()}
        values |= self._rates.of(counters)
        values |= self._throttled()
        values["node.memory"] = values["node.memory_peak"] = used.memory if memory is None else memory[0]
        if memory is None:
            self._absent["node.page_cache"] = NOT_MEASURED
        else:
            values["node.page_cache"] = memory[1]
        peak = None if cgroup is None else cgroup.charged_peak()
        if peak is not None:
            values["node.charged_peak"] = peak
        self._count_oom_kills()
        return values

    def _throttled(self) -> dict[str, float]:
        """The share of the scheduler's periods in which a quota on CPUs held the step up: that of the strictest quota.
        Without a quota it is 0."""
        if self._cgroup is None:
            self._absent["node.cpu_quota_throttled"] = NOT_SUPPORTED
            return {}
        before, now = self._periods, dict(self._cgroup.cpu_periods())
        self._periods = now
        shares = [0.0]
        for place, (periods, throttled) in now.items():
            if place in before and periods > before[place][0]:
                shares.append(max(0, throttled - before[place][1]) / (periods - before[place][0]))
        return {"node.cpu_quota_throttled": max(shares)}

    def _count_oom_kills(self) -> None:
        kills = None if self._cgroup is None else self._cgroup.oom_kills()
        if kills is not None and kills > (self._oom_kills or 0):
            count = kills - (self._oom_kills or 0)
            self._events.append({"event": "oom_kill", "time": round(time.time(), 2), "count": count})
        self._oom_kills = kills
