"""The status of a run as a value: what `slurmopt status --json` prints, with types."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from slurmopt.runs.status.query import as_dict
from slurmopt.runs.status.state import ALIVE, ENDED

if TYPE_CHECKING:
    from slurmopt.runs.status.query import Status


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """The status of a run at one moment. Times are seconds since the epoch; None is unknown, or not there yet."""

    state: str
    """`pending`, `running`, `stopping`, `requeued`; at its end `finished`, `failed`, `killed`, `cancelled`, `lost`;
    else `unsubmitted`, `unknown`."""
    detail: str | None = None
    """Why it is in this state."""
    job: str | None = None
    """The Slurm job ID; `local-PID` for the local backend."""
    attempt: int | None = None
    """The number of the latest attempt, from 0."""
    attempts: int = 0
    nodes: str | None = None
    estimated_start: float | None = None
    """When Slurm expects a waiting run to start."""
    created: float | None = None
    submitted: float | None = None
    started: float | None = None
    """When the latest attempt started."""
    ended: float | None = None
    elapsed: float | None = None
    """Seconds for which the latest attempt has run."""
    step: int | None = None
    total_steps: int | None = None
    steps_per_second: float | None = None
    eta_seconds: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    """The last value of each metric."""
    heartbeat: float | None = None
    exit_code: int | None = None
    rank: int | None = None
    """The rank that failed first."""
    error: str | None = None
    cause: str | None = None
    """Why the latest attempt ended: one of the causes in docs/survival.md."""

    @property
    def alive(self) -> bool:
        """Whether the run waits or goes on."""
        return self.state in ALIVE

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return self.state in ENDED


def from_status(status: Status) -> RunStatus:
    """The snapshot of what was queried."""
    known = as_dict(status, details=False)
    values = {item.name: known[item.name] for item in fields(RunStatus) if item.name in known}
    return RunStatus(**{**values, "metrics": status.progress.metrics})
