"""What a training takes as a whole: time with its restarts, GPU-hours, money and energy."""

from __future__ import annotations

from dataclasses import dataclass

from slurmopt.planning.hardware import Gpu
from slurmopt.planning.interruptions import expected_seconds, optimum
from slurmopt.planning.ranges import Range

_LOAD = Range(0.6, 1.0)
"""The part of its limit of power that a GPU takes in training. Assumed; the report of a run measures it."""


_LEAST_BLOCKED = 1e-3
"""Seconds; a save that blocks nothing would be made all the time."""


@dataclass(frozen=True, kw_only=True)
class Failures:
    """What interrupts a training, in seconds."""

    mtbf_of_node: float
    restart: float
    """From a failure to the first new step, the wait in the queue included."""
    blocked: float
    """What a save blocks the training for."""


@dataclass(frozen=True, kw_only=True)
class Total:
    """The whole training; intervals of 90 %."""

    seconds: Range
    """With restarts and saves, where these are known."""
    gpu_hours: Range
    kwh: Range
    idle_hours: float
    """GPU-hours that a cloud bills around the job: boot and power-down."""
    interval: float | None
    """The seconds between saves that are best; None where nothing is known of failures."""
    mtbf: float | None
    """The mean seconds between failures of the whole job; None where nothing is known of them."""


def total(
    steps: float, step: Range, gpus: int, nodes: int, gpu: Gpu, failures: Failures | None, idle: float = 0.0
) -> Total:
    """The whole of `steps` steps on so many GPUs. Failures are those of independent nodes: M = M_node / nodes. `idle`:
    seconds for which nodes are billed before and after the job."""
    work, interval, mtbf = steps * step, None, None
    if failures is not None:
        mtbf = failures.mtbf_of_node / nodes
        interval = optimum(max(failures.blocked, _LEAST_BLOCKED), mtbf)
        low, high = (
            expected_seconds(each, interval, failures.blocked, failures.restart, mtbf) for each in (work.low, work.high)
        )
        work = Range(low, high)
    hours = work * (gpus / 3600)
    kwh = Range(hours.low * _LOAD.low, hours.high * _LOAD.high) * (gpu.watts / 1000)
    return Total(seconds=work, gpu_hours=hours, kwh=kwh, idle_hours=gpus * idle / 3600, interval=interval, mtbf=mtbf)
