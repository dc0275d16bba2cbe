"""The fields of a point's events that the status of a sweep needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ABSENT = "\0"
"""The value of a missing field, where null has a meaning of its own."""


@dataclass(slots=True)
class PointEvent:
    """The fields of an `attempt`, `end` or `point` event."""

    event: str
    time: float | None
    job: str | None
    point: int | None
    state: str | None
    attempt: int | None
    outcome: str | None
    cause: str | None
    next: str | None
    error: str | None
    reason: str | None
    rank: int | None
    seconds: float | None
    pruned: bool
    by: str | None
    metrics: Any
    result: Any
