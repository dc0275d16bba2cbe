"""Measures the steps of a trial of `slurmopt tune`, in its rank 0, and ends it after the last one."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol

from slurmopt.config.sweep import BATCH_SIZE
from slurmopt.errors import Pruned
from slurmopt.grid.search import loader_settings
from slurmopt.grid.search.batch_size import LIMIT, MEMORY, RATE
from slurmopt.grid.search.space import Search
from slurmopt.job.facts.rank_facts import rank_facts
from slurmopt.job.heartbeat.activity_clock import INPUT
from slurmopt.job.heartbeat.counters import BATCH_COSTS, SAMPLES, TOKENS
from slurmopt.job.monitor.here import Roots
from slurmopt.job.monitor.sources import step_cgroup
from slurmopt.job.monitor.sources.usable_cpus import usable_cpus
from slurmopt.job.worker import current_run
from slurmopt.kernel_files import table

_NOT_MEASURED = 4
"""One of so many steps, the first: optimizers make their moments, DDP its buckets, libraries choose algorithms, and a
loader's workers start."""


class _Measure(Protocol):
    def begin(self) -> None:
        """The measured steps begin."""

    def end(self, steps: float, seconds: float) -> dict[str, float]:
        """They have ended; returns metrics."""


def tuning_judge(search: Search, values: Mapping[str, Any]) -> TuningJudge:
    """The judge of a trial with these values."""
    if search.method == BATCH_SIZE:
        (size,) = values.values()
        return TuningJudge(search.steps, _Memory(), size=size)
    return TuningJudge(search.steps, _Input())


class TuningJudge:
    """Told of each step, it ends the trial after `steps` steps and reports what it measured as metrics."""

    def __init__(self, steps: int, measure: _Measure, size: int = 1) -> None:
        """`size`: the work of a step, which counts where the training tells neither tokens nor samples."""
        self._steps, self._measure, self._size = steps, measure, size
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
            self._measure.begin()
        if self._seen < self._steps or self._from is None or not self._work:
            return False
        self._reports = True
        seconds = _now() - self._from
        found = self._measure.end(self._work["steps"], seconds)
        current_run.progress(step, total, **{RATE: self._rate(seconds), **found})
        raise Pruned(f"{self._steps} steps were measured")

    def _add(self, metrics: Mapping[str, float]) -> None:
        for name, value in (("steps", 1.0), (TOKENS, metrics.get(TOKENS, 0.0)), (SAMPLES, metrics.get(SAMPLES, 0.0))):
            if 0 <= value < math.inf:  # as the counters leave out what is no amount
                self._work[name] = self._work.get(name, 0.0) + value

    def _rate(self, seconds: float) -> float:
        work = self._work.get(TOKENS) or self._work.get(SAMPLES) or self._work["steps"] * self._size
        return work / max(seconds, 1e-9)


class _Memory:
    def begin(self) -> None:
        pass

    def end(self, steps: float, seconds: float) -> dict[str, float]:
        return _memory()


class _Input:
    """What a step waits for input, and what a batch costs whoever makes it."""

    def __init__(self) -> None:
        self._before: dict[str, float] = {}

    def begin(self) -> None:
        self._before = _spent_on_input()

    def end(self, steps: float, seconds: float) -> dict[str, float]:
        now = _spent_on_input()
        spent = {name: value - self._before.get(name, 0.0) for name, value in now.items()}
        found = {loader_settings.CPUS: float(usable_cpus()), loader_settings.GPU: float(_cuda() is not None)}
        if INPUT in spent:
            wait = spent[INPUT] / steps
            found |= {loader_settings.WAIT: wait, loader_settings.STEP: max(0.0, seconds / steps - wait)}
        if spent.get(BATCH_COSTS.batches):
            per_step = 1 / steps  # a step may take several batches
            fetch, collate = spent[BATCH_COSTS.fetch], spent[BATCH_COSTS.collate]
            found[loader_settings.SERVICE] = (fetch + collate) * per_step
            found[loader_settings.COMPUTED] = (spent[BATCH_COSTS.fetch_cpu] + collate) * per_step
        return found


def _spent_on_input() -> dict[str, float]:
    meter = current_run.meter()
    if meter is None:
        return {}
    spent, counted = meter.clock.spent(), meter.counters.totals()
    input_only = {INPUT: spent[INPUT]} if INPUT in spent else {}
    return input_only | {name: counted[name] for name in BATCH_COSTS if name in counted}


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
    # What the training allows itself by set_per_process_memory_fraction; to read it came with torch 2.8.
    allowed = total * getattr(cuda, "get_per_process_memory_fraction", lambda: 1.0)()
    return {MEMORY: float(cuda.max_memory_reserved()), LIMIT: float(min(total - others, allowed))}


def _host_memory() -> dict[str, float]:
    roots = Roots()
    peak = table(roots.proc / "self/status").get("VmHWM")
    if peak is None:
        return {}
    cgroup, host = step_cgroup.find(os.getpid(), roots), table(roots.proc / "meminfo").get("MemTotal", 0) * 1024
    limit = (None if cgroup is None else cgroup.memory_limit()) or host
    return {MEMORY: peak * 1024.0, LIMIT: min(limit, host) / rank_facts().local_world_size}
