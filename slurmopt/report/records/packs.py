"""Divides what an array task was allocated among the points that it ran side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from slurmopt.ledger import buckets
from slurmopt.ledger.packs import divide
from slurmopt.ledger.record import AttemptRecord
from slurmopt.report.run_record import Place, RunRecord
from slurmopt.run_folder.attempts import Event


@dataclass
class TaskAttempt:
    """One attempt of an array task that runs several points."""

    record: AttemptRecord
    """Its allocation; without ranks."""
    event: Event
    """Its `attempt` event."""
    gpu: str | None = None
    """The name of its GPUs, as its sampler knows it."""
    stays: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """Point and its attempt → when it ran there, in milliseconds."""

    @property
    def units(self) -> float:
        return sum(self.record.gpus.values())


def share_out(tasks: Mapping[Place, TaskAttempt], points: Mapping[int, RunRecord]) -> dict[str, int]:
    """Gives the attempts of the points their shares, as `allocated`; returns what no point had, in buckets."""
    for number, point in points.items():
        point.attempts = [_placed(tasks, number, point, attempt) for attempt in point.attempts]
    between: dict[str, int] = defaultdict(int)
    shares: dict[tuple[int, int], int] = {}
    for task in tasks.values():
        start, end = round(task.record.start * 1000), round(task.record.end * 1000)
        had, idle = divide(task.units, start, end, {key: [stay] for key, stay in task.stays.items()})
        shares |= had
        for bucket, amount in _between(task.units, start, max(start, end), list(task.stays.values()), idle).items():
            between[bucket] += amount
    for number, point in points.items():
        point.attempts = [
            replace(attempt, allocated=shares.get((number, attempt.number), attempt.allocated))
            for attempt in point.attempts
        ]
    return dict(between)


def _placed(tasks: Mapping[Place, TaskAttempt], number: int, point: RunRecord, attempt: AttemptRecord) -> AttemptRecord:
    """The attempt, with its nodes from the array task's attempt, where it is noted."""
    place = point.facts[attempt.number].place
    task = tasks.get(place) if place is not None else None
    if task is None:
        return attempt
    told = point.facts[attempt.number].attempt.ended is not None or attempt.alive
    end = attempt.end if told else max(attempt.start, task.record.end)
    task.stays[number, attempt.number] = round(attempt.start * 1000), round(end * 1000)
    return replace(attempt, end=end)


def _between(units: float, start: int, end: int, stays: Sequence[tuple[int, int]], idle: int) -> dict[str, int]:
    """What no point had: until the first began, after the last ended, and the rest."""
    inside = [(max(since, start), min(until, end)) for since, until in stays if max(since, start) < min(until, end)]
    if not inside:
        return {buckets.STARTUP: idle} if idle else {}
    before = min(idle, round(units * (min(since for since, _ in inside) - start)))
    after = min(idle - before, round(units * (end - max(until for _, until in inside))))
    parts = {buckets.STARTUP: before, buckets.WIND_DOWN: after, buckets.UNUSED: idle - before - after}
    return {bucket: amount for bucket, amount in parts.items() if amount}
