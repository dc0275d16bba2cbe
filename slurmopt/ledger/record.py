"""What the ledger is computed from: attempts, their ranks and what the ranks report. Times are seconds since the
epoch."""

from __future__ import annotations

from dataclasses import dataclass, field

FINISHED, HANG = "finished", "hang"
"""Causes of an end, as in `slurmopt.restart.causes`, which the ledger may not import."""


@dataclass(frozen=True)
class Sample:
    """What a rank had done at one time of an attempt."""

    time: float
    step: int | None
    spent: dict[str, float]
    """Activity → seconds since the rank started; see `slurmopt.run_folder.heartbeat.Heartbeat.spent`."""


@dataclass(frozen=True)
class RankRecord:
    """One rank of an attempt."""

    rank: int
    node: str
    gpus: float
    """How many of the node's GPUs it uses; a fraction where ranks or points share one."""
    started: float
    seen: float
    """When it last reported."""
    ended: bool
    """Whether it reported its end; otherwise it was killed, or still runs."""
    spent: dict[str, float]
    """Activity → seconds from `started` to `seen`, as the rank measured them."""
    first_step: int | None = None
    step: int | None = None
    samples: tuple[Sample, ...] = ()
    """Its earlier reports, oldest first; may be empty."""
    counted: dict[str, float] = field(default_factory=dict)
    """What it counted since it started: see `slurmopt.run_folder.heartbeat.Heartbeat.counted`."""
    activity: str | None = None
    """What it did when it last reported."""
    first_step_time: float | None = None
    """When it reported `first_step`."""
    step_time: float | None = None
    """When it reported `step`."""
    stands_for: int = 1
    """How many ranks this record describes: more than 1 where of many ranks only some were read."""


@dataclass(frozen=True)
class AttemptRecord:
    """One attempt of a run."""

    number: int
    start: float
    """When its allocation began, as far as that is known."""
    end: float
    """When its allocation ended; now, while it runs."""
    gpus: dict[str, float]
    """Node → allocated GPUs. Without GPUs: allocated CPUs, see `unit`."""
    ranks: tuple[RankRecord, ...] = ()
    alive: bool = False
    cause: str | None = None
    """A word of `slurmopt.restart.causes`; None while it runs and where it is not known."""
    stalled_seconds: float = 0.0
    """How long it had made no step when the watchdog found that it hangs."""
    restored_step: int | None = None
    """The step that it continued from; None if it restored nothing."""
    durable_step: int | None = None
    """The newest step of it that is durable."""
    durable_since: float | None = None
    """When the save of that step began; None where that is not known."""
    unit: str = "GPU"
    """What is counted: GPU, or CPU where none was allocated."""
    queued: float | None = None
    """Since when it waited in the queue."""
    began: bool | None = None
    """Whether a rank came to start the task; None where nothing tells."""
    stalled_since: float | None = None
    """When it made the last step before the hang that the watchdog found."""
    allocated: int | None = None
    """GPU-milliseconds, where that is not `gpus` times its length: of a point that shared its GPUs with others."""
    notes: tuple[str, ...] = field(default=())
    """What is missing or was estimated, one line each."""
