"""What training code tells of itself so that its time and work can be measured: operations, and what blocks it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from slurmopt.errors import JobError
from slurmopt.job.heartbeat.activity_clock import SAVING
from slurmopt.job.heartbeat.counters import SAMPLES, TOKENS
from slurmopt.job.worker import current_run


def flops_per_sample(flops: float, *, hardware: float | None = None) -> None:
    """Sets how many floating-point operations the model needs for a sample, forward and backward; `progress` multiplies
    its `samples` with that. `hardware`: with what is computed twice (activation checkpointing).
    `slurmopt.training.count_flops` counts both. A no-op outside a slurmopt job."""
    _set_flops(SAMPLES, flops, hardware)


def flops_per_token(flops: float, *, hardware: float | None = None) -> None:
    """`flops_per_sample` for each token; `progress` multiplies its `tokens` with that."""
    _set_flops(TOKENS, flops, hardware)


def _set_flops(name: str, flops: float, hardware: float | None) -> None:
    for value in (flops, flops if hardware is None else hardware):
        if not (isinstance(value, (int, float)) and math.isfinite(value) and value > 0):
            raise JobError(f"flops_per_{name[:-1]}: {value!r} is no number of operations; valid: a number above 0")
    meter = current_run.meter()
    if meter is not None:
        meter.counters.set_flops(name, float(flops), None if hardware is None else float(hardware))


@contextlib.contextmanager
def spending(activity: str) -> Iterator[None]:
    """Counts the time of the block as `activity`. The last save of an attempt stays `saving`."""
    meter = current_run.meter()
    if meter is None or meter.clock.activity == SAVING:
        yield
        return
    outer = meter.clock.begin(activity)
    try:
        yield
    finally:
        meter.clock.resume(outer)
