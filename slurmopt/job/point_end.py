"""How an attempt of a point ended, as the array task's journal tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

OVERTAKEN = "overtaken"
"""The cause of an array task's End of a point that a newer submission has: it is no failure."""


@dataclass(frozen=True, kw_only=True)
class End:
    """How a point's attempt ended: what the `point` event of the array task's journal tells."""

    point: int
    attempt: int | None
    """None: it could not be started."""
    outcome: str
    """A word of `slurmopt.run_folder.outcome`."""
    cause: str
    """A word of `slurmopt.restart.causes`, or OVERTAKEN."""
    next: str | None
    """None: for good. "requeue": the point is started again."""
    error: str | None = None
    seconds: float | None = None
    """How long the attempt took."""
    step: int | None = None
    metrics: dict[str, float] | None = None
    """The last values that rank 0 gave to `progress()`."""
    result: Any = None
    """What the function returned, where JSON can hold it in 16 KB."""
    pruned: bool = False
    """Whether its search gave it up before its end."""
