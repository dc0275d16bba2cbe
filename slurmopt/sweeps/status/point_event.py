"""The fields of an event of a point's journal that sweeps look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ABSENT = "\0"
"""Of a field that may be null, and may be missing."""


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
