"""A finding: something that is wrong or wasteful, how sure that is, what it costs, and one thing to change."""

from __future__ import annotations

from dataclasses import dataclass

CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"
SURE = (CERTAIN, LIKELY, POSSIBLE)

INPUT_BOUND = "input-bound"
HOST_BOUND = "host-bound"
COMMUNICATION_BOUND = "communication-bound"
BANDWIDTH_BOUND = "memory-bandwidth-bound"
THROTTLED = "throttled"
STRAGGLER = "straggler"
IDLE_GPUS = "idle GPUs"
UNUSED_GPU_MEMORY = "unused GPU memory"
UNUSED_MEMORY = "unused memory"
LEAK = "leak"
OUT_OF_MEMORY = "out of memory"
FALLING = "falling throughput"
HANG = "hang"
XID = "XID"
FOREIGN = "foreign processes"
RECOMPILATION = "recompilation"
CHECKPOINT_STALL = "checkpoint stall"
START_UP = "start-up"
LOST_WORK = "lost work"
LOW_UTILISATION = "low utilisation"
"""Never a finding of its own: an abstention where a GPU is little used and signals are missing that would tell why."""

KINDS = (
    HANG, XID, OUT_OF_MEMORY, LEAK, STRAGGLER, THROTTLED, FOREIGN, IDLE_GPUS, INPUT_BOUND, COMMUNICATION_BOUND,
    HOST_BOUND, BANDWIDTH_BOUND, FALLING, RECOMPILATION, CHECKPOINT_STALL, START_UP, LOST_WORK, UNUSED_GPU_MEMORY,
    UNUSED_MEMORY,
)  # fmt: skip
"""All kinds of findings. Those that endanger the run come first; then the order decides between equal costs."""


@dataclass(frozen=True)
class Finding:
    """One finding of a report."""

    kind: str
    """A word of docs/findings.md, such as `input-bound`."""
    summary: str
    """What is wrong, in one line for people."""
    sure: str
    """How sure it is: CERTAIN, LIKELY, POSSIBLE."""
    evidence: tuple[str, ...]
    """What shows it, with numbers and units; one line each."""
    cost: float | None
    """GPU-hours (CPU-hours without GPUs) that it costs; None where that cannot be computed."""
    change: str
    """One thing to change: an override or a line of code."""
    node: str | None = None
    rank: int | None = None
    gpu: int | None = None
    """The GPU's index on its node."""
    cause: str | None = None
    """What is behind it, a word of docs/findings.md such as `storage`; None where that is not told apart."""

    @property
    def name(self) -> str:
        """Its kind and what is behind it: `input-bound (storage)`."""
        return self.kind if self.cause is None else f"{self.kind} ({self.cause})"


@dataclass(frozen=True)
class Abstention:
    """A kind of finding that could not be judged, and the signals that were missing."""

    kind: str
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Diagnosis:
    """What was found in an attempt, or in all attempts of a run."""

    findings: tuple[Finding, ...] = ()
    """The ones that endanger the run first, then by cost times certainty."""
    abstentions: tuple[Abstention, ...] = ()
    notes: tuple[str, ...] = ()
    """What limits the speed where nothing is wrong, such as `compute-bound`; one line each."""
    hours: float = 0.0
    """The allocated hours of `unit` that were looked at."""
    unit: str = "GPU"
    judged: bool = False
    """Whether an attempt trained for long enough to be judged; else only failures were looked at."""
    steps_per_second: float | None = None
    """Of the slowest rank, after the first step."""
