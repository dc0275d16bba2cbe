"""How long jobs would have waited on a given number of GPUs, first come, first served."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from slurmopt.planning.capacity.demand import Job
from slurmopt.planning.right_size import quantile


@dataclass(frozen=True)
class Waits:
    """Of the jobs that could start, in seconds; None where none could."""

    gpus: int | None
    """None for what was recorded."""
    jobs: int
    never: int
    """Jobs that need more GPUs than there are; they are left out."""
    mean: float | None
    p90: float | None


def recorded(jobs: Sequence[Job]) -> Waits:
    """How long they did wait."""
    return _waits(None, [job.wait for job in jobs], 0)


def first_come(jobs: Sequence[Job], gpus: int) -> Waits:
    """Each job starts when those submitted before it have started and enough GPUs are free, and takes as long as it
    did. GPUs count as one pool; nodes, priorities and backfill are left out."""
    waits: list[float] = []
    running: list[tuple[float, float]] = []
    free, now = float(gpus), float("-inf")
    fitting = [job for job in jobs if job.gpus <= gpus]
    for job in sorted(fitting, key=lambda job: job.submitted):
        now = max(now, job.submitted)
        while running and (free < job.gpus or running[0][0] <= now):
            ended, freed = heapq.heappop(running)
            free, now = free + freed, max(now, ended)
        waits.append(now - job.submitted)
        free -= job.gpus
        heapq.heappush(running, (now + job.seconds, job.gpus))
    return _waits(gpus, waits, len(jobs) - len(fitting))


def _waits(gpus: int | None, waits: Sequence[float], never: int) -> Waits:
    if not waits:
        return Waits(gpus, 0, never, None, None)
    return Waits(gpus, len(waits), never, fmean(waits), quantile(waits, 0.9))
