"""How many GPUs were in use in each hour, from jobs. Times are seconds of the site's own clock, as if it were UTC: the
hour of a day is `time // 3600 % 24`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slurmopt.planning.right_size import quantile

HOUR = 3600
_FIRST_WEEKDAY = 3
"""Of 1970-01-01, a Thursday, where Monday is 0."""
OFTEN = 0.9
"""Of the same hours of a week, the part that is to have enough."""


@dataclass(frozen=True)
class Job:
    """One start of a job."""

    submitted: float
    started: float
    ended: float
    gpus: float
    """A fraction where points of a sweep share one."""

    @property
    def wait(self) -> float:
        return self.started - self.submitted

    @property
    def seconds(self) -> float:
        return self.ended - self.started


@dataclass(frozen=True)
class Demand:
    """The mean number of GPUs in use in each hour, one after the other."""

    first: int
    """The first hour, in hours since the epoch."""
    gpus: tuple[float, ...]

    @property
    def gpu_hours(self) -> float:
        return math.fsum(self.gpus)


def demand(jobs: Sequence[Job], since: float | None = None) -> Demand:
    """That of the whole hours from the first start, or from `since`, to the last end."""
    begin = min(job.started for job in jobs)
    first = math.floor((begin if since is None else max(begin, since)) / HOUR)
    count = max(1, math.ceil(max(job.ended for job in jobs) / HOUR) - first)
    parts, steps = [0.0] * (count + 1), [0.0] * (count + 1)
    for job in jobs:
        start, end = (max(0.0, (time - first * HOUR) / HOUR) for time in (job.started, job.ended))
        if end <= start:
            continue
        low, high = math.floor(start), math.floor(end)
        # Whole hours are steps up and down; what begins or ends within an hour is corrected there.
        steps[low] += job.gpus
        steps[high] -= job.gpus
        parts[low] -= job.gpus * (start - low)
        parts[high] += job.gpus * (end - high)
    found, running = [], 0.0
    for step, part in zip(steps[:count], parts[:count], strict=True):
        running += step
        found.append(max(0.0, running + part))
    return Demand(first, tuple(found))


def peak(jobs: Sequence[Job]) -> int:
    """The most GPUs in use at one time."""
    changes = sorted(
        change for job in jobs if job.seconds > 0 for change in ((job.started, job.gpus), (job.ended, -job.gpus))
    )
    most = running = 0.0
    for _, change in changes:  # of the same time, ends come first
        running += change
        most = max(most, running)
    return math.ceil(most - 1e-6)


def week(found: Demand, share: float = OFTEN) -> list[list[float | None]]:
    """For each weekday from Monday on and each hour of it, the GPUs that were enough in that share of the weeks; None
    where the history has no such hour."""
    seen: list[list[list[float]]] = [[[] for _ in range(24)] for _ in range(7)]
    for at, gpus in enumerate(found.gpus):
        days, hour = divmod(found.first + at, 24)
        seen[(days + _FIRST_WEEKDAY) % 7][hour].append(gpus)
    return [[quantile(values, share) if values else None for values in day] for day in seen]
