"""A row of the board: what it knows of one run or sweep. Rows are values, made by `slurmopt.board.rows.reading`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slurmopt.errors import one_line

UNREAD = "…"
"""The state of a row whose folder was not read yet."""
GONE = "gone"
"""The state of a row whose folder no longer exists."""
_ALIVE = ("running", "stopping", "requeued", "pending")
_ORDER = (*_ALIVE, "failed", "killed", "lost", "unknown", "unsubmitted", "cancelled", "finished", GONE, UNREAD)


@dataclass(frozen=True)
class Row:
    """One run or sweep. Texts may be anybody's, and may hold anything: only `slurmopt.board.columns` prints them."""

    path: Path
    name: str
    id: str
    is_sweep: bool = False
    state: str = UNREAD
    detail: str = ""
    """Why it waits or failed."""
    created: float | None = None
    """Seconds since the epoch, as all times."""
    ended: float | None = None
    elapsed: float | None = None
    """Seconds of the latest attempt."""
    step: int | None = None
    total: int | None = None
    rate: float | None = None
    """Steps per second; of a sweep, points per minute."""
    left: float | None = None
    """Seconds."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    curve: tuple[float, ...] = ()
    """The values of the shown metric, as long as the board has looked at it."""
    gpu: tuple[float | None, ...] = ()
    """How busy its GPUs were, in percent, oldest first; empty where nothing was measured."""
    job: str = ""
    attempt: int | None = None
    nodes: str = ""
    owner: str = ""
    """The other user whom it belongs to."""
    read: bool = True
    """Whether it was read; else only its name is known."""

    @property
    def label(self) -> str:
        """NAME/ID."""
        return one_line(f"{self.name}/{self.id}")

    @property
    def alive(self) -> bool:
        return self.state in _ALIVE

    @property
    def share(self) -> float | None:
        """How much of it is done, from 0 to 1."""
        if self.step is None or not self.total or self.total < 0:
            return None
        return min(1.0, max(0.0, self.step / self.total))

    @property
    def metric(self) -> tuple[str, float] | None:
        """The metric that the board shows: a loss, else the first."""
        name = shown_metric(self.metrics)
        return None if name is None else (name, self.metrics[name])


def shown_metric(metrics: Mapping[str, float]) -> str | None:
    """The name of the metric that stands for all."""
    return next((name for name in metrics if "loss" in name.lower()), next(iter(metrics), None))


def rank_of(state: str) -> int:
    """What is under way comes first, then what failed."""
    return _ORDER.index(state) if state in _ORDER else len(_ORDER)


def counts(rows: Iterable[Row]) -> list[tuple[str, int]]:
    """State → how many rows have it, in the order of `rank_of`."""
    return sorted(Counter(row.state for row in rows).items(), key=lambda item: rank_of(item[0]))
