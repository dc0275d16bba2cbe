"""Measures the steps of a trial of a batch size, in its rank 0, and ends it after the last one."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from slurmopt.errors import Pruned
from slurmopt.grid.search.batch_size import LIMIT, MEMORY, RATE
from slurmopt.job.facts.rank_facts import rank_facts
from slurmopt.job.heartbeat.counters import SAMPLES, TOKENS
from slurmopt.job.monitor.here import Roots
from slurmopt.job.monitor.sources import step_cgroup
from slurmopt.job.worker import current_run
from slurmopt.kernel_files import table

_NOT_MEASURED = 4
"""One of so many steps, the first: optimizers make their moments, DDP its buckets, libraries choose algorithms."""


class SizeJudge:
    """Told of each step, it ends the trial after `steps` steps and reports what it measured as metrics."""

    def __init__(self, steps: int, size: int) -> None:
        """`size`: the batch size of the trial, which counts where the training tells neither tokens nor samples."""
        self._steps, self._size = steps, size
        self._seen = 0
        self._from: float | None = None
        self._work: dict[str, float] = {}
        self._reports = False

    def __call__(self, step: int, total: int | None, metrics: Mapping[str, float]) -> bool:
        """Raises Pruned after the last step; False before."""
        if self._reports:
            return False
        self._seen += 1
        if self._from is not None:
            self._add(metrics)
        if self._seen == max(1, self._steps // _NOT_MEASURED):
            self._from = _now()
        if self._seen < self._steps or self._from is None or not self._work:
            return False
        self._reports = True
        current_run.progress(step, total, **{RATE: self._rate(_now() - self._from), **_memory()})
        raise Pruned(f"{self._steps} steps of this batch size were measured")

    def _add(self, metrics: Mapping[str, float]) -> None:
        for name, value in (("steps", 1.0), (TOKENS, metrics.get(TOKENS, 0.0)), (SAMPLES, metrics.get(SAMPLES, 0.0))):
            self._work[name] = self._work.get(name, 0.0) + value

    def _rate(self, seconds: float) -> float:
        work = self._work[TOKENS] or self._work[SAMPLES] or self._work["steps"] * self._size
        return work / max(seconds, 1e-9)


def _cuda() -> Any:
    """torch.cuda, if this process uses it."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


def _now() -> float:
    if (cuda := _cuda()) is not None:
        cuda.synchronize()  # or what is queued by now would count for later steps
    return time.monotonic()


def _memory() -> dict[str, float]:
    """The peak of this rank's memory and what it can have, in bytes: of its GPU, else of the host."""
    cuda = _cuda()
    if cuda is None:
        return _host_memory()
    free, total = cuda.mem_get_info()
    others = max(0, total - free - cuda.memory_reserved())  # the context, NCCL's buffers, other processes
    return {MEMORY: float(cuda.max_memory_reserved()), LIMIT: float(total - others)}


def _host_memory() -> dict[str, float]:
    roots = Roots()
    peak = table(roots.proc / "self/status").get("VmHWM")
    if peak is None:
        return {}
    cgroup, host = step_cgroup.find(os.getpid(), roots), table(roots.proc / "meminfo").get("MemTotal", 0) * 1024
    limit = (None if cgroup is None else cgroup.memory_limit()) or host
    return {MEMORY: peak * 1024.0, LIMIT: min(limit, host) / rank_facts().local_world_size}
