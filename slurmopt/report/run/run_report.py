"""What a report on a run shows, as values: text, page and JSON are made of it. Times are seconds since the epoch.

A reading is a number, or why there is none: one of ABSENT in
`slurmopt.run_folder.series.series_format`. So a zero is a measured zero everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from slurmopt.ledger.findings.finding import Abstention, Finding
from slurmopt.run_folder.series.series import NOT_MEASURED

Reading = float | str


@dataclass(frozen=True)
class Share:
    """A bucket of the ledger."""

    bucket: str
    seconds: float
    """Device-seconds: of GPUs, or of CPUs where the run has no GPU."""
    share: float
    """Of all allocated ones, 0 to 1."""


@dataclass(frozen=True)
class Cost:
    """What the allocated time costs. Fields are None where nothing tells."""

    amount: float | None = None
    currency: str | None = None
    per_hour: float | None = None
    """The price of a device-hour."""
    source: str | None = None
    """Where the price is from, and of what date."""
    energy: float | None = None
    """Joules."""
    co2: float | None = None
    """Kilograms."""


@dataclass(frozen=True)
class Usage:
    """How much of a resource was used, as a bar."""

    name: str
    share: Reading
    """Of what there is, 0 to 1."""
    detail: str
    """The same with units, such as `61.2 GiB at most, of 80.0 GiB`."""


@dataclass(frozen=True)
class NodeRow:
    """A node over all attempts."""

    node: str
    devices: int
    ranks: tuple[int, ...]
    readings: dict[str, Reading]
    """A key of COLUMNS → its reading."""
    remark: str = ""
    """What is odd about it."""


@dataclass(frozen=True)
class AttemptRow:
    """An attempt. Fields are None where they are not known."""

    number: int
    job: str | None
    nodes: str | None
    node_count: int
    devices: float
    start: float | None
    end: float | None
    """None while it runs."""
    queued: float | None
    """Seconds in the queue before it."""
    restart: float | None
    """Seconds from its start to its first new step."""
    first_step: int | None
    last_step: int | None
    steps_lost: int | None
    cause: str | None
    error: str | None
    seconds: float | None
    device_seconds: float | None


@dataclass(frozen=True)
class Line:
    """One curve: a value, or None, for each of the times of its panel."""

    label: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Panel:
    """Curves over the same wall-clock times."""

    title: str
    unit: str
    times: tuple[float, ...]
    lines: tuple[Line, ...]
    top: float | None = None
    """The upper end of the scale, where that is known: 100 %, the memory of a GPU."""


@dataclass(frozen=True)
class Column:
    """A column of the table of nodes."""

    title: str
    unit: str
    """How to print it: percent, bytes, watts, celsius, cores, rate, seconds."""
    worse: str
    """Whether a `low` or a `high` value is the odd one; else `both`."""


COLUMNS = {
    "util": Column("GPU activity", "percent", "low"),
    "sm": Column("SM activity", "percent", "low"),
    "tensor": Column("tensor activity", "percent", "low"),
    "memory": Column("GPU memory, peak", "bytes", "both"),
    "power": Column("power of a GPU", "watts", "low"),
    "temperature": Column("hottest GPU", "celsius", "high"),
    "throttled": Column("throttled", "percent", "high"),
    "input": Column("waits for input", "percent", "high"),
    "cpu": Column("CPU cores", "cores", "both"),
    "host_memory": Column("host memory, peak", "bytes", "high"),
    "step_rate": Column("steps/s", "rate", "low"),
}
"""Key of `NodeRow.readings` → its column, in the order of the table."""


@dataclass(frozen=True)
class Accounting:
    """The ledger beside Slurm's accounting, in seconds of devices."""

    charged: float
    """What sacct says that the run's jobs were allocated."""
    counted: float
    """What the journal says of the same."""
    difference: float
    """`charged` - `counted`; some seconds for each start and device are usual."""
    unit: str


@dataclass(frozen=True)
class Planned:
    """What `slurmopt plan` says of the run's config beside what it measured; None where that was not measured."""

    peak: float | None
    """Bytes that torch had reserved on the rank that needed most."""
    planned_peak: tuple[float, float]
    """The 90 % interval of the formulas, without context and NCCL's buffers."""
    step: float | None
    """Seconds."""
    planned_step: tuple[float, float]


@dataclass
class RunReport:
    """A report on a run, or on a job that slurmopt did not launch."""

    label: str
    state: str
    detail: str | None = None
    experiment: str | None = None
    folder: str | None = None
    owner: str | None = None
    backend: str | None = None
    jobs: list[str] = field(default_factory=list)
    created: float | None = None
    now: float = 0.0
    unit: str = "GPU"
    """GPU, or CPU where no GPU was allocated."""
    device: str | None = None
    """The name of the GPUs."""
    nodes: int | None = None
    """Of the latest attempt."""
    devices: float | None = None
    wall: float | None = None
    """Seconds from the launch to the end, or to now."""
    ran: float | None = None
    """Seconds in attempts."""
    queued: float | None = None
    """Seconds in the queue."""
    step: int | None = None
    total_steps: int | None = None
    step_rate: float | None = None
    """Steps per second of compute time, without restarts."""
    rates: dict[str, float] = field(default_factory=dict)
    """Further rates per second: tokens, samples, flops, hardware_flops; and `mfu` and `hfu`, 0 to 1."""
    device_seconds: float = 0.0
    shares: list[Share] = field(default_factory=list)
    provisional: bool = False
    """Whether the ledger may still change: the run goes on, or its last steps may be lost."""
    planned: Planned | None = None
    """None where the config has no plan."""
    accounting: Accounting | None = None
    """None where sacct was not asked, or knows none of its jobs."""
    cost: Cost = field(default_factory=Cost)
    usage: list[Usage] = field(default_factory=list)
    node_rows: list[NodeRow] = field(default_factory=list)
    """The odd ones first."""
    attempts: list[AttemptRow] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    abstentions: list[Abstention] = field(default_factory=list)
    helped: list[str] = field(default_factory=list)
    """What became of the findings of the run before."""
    notes: list[str] = field(default_factory=list)
    """What is missing, estimated or provisional."""
    panels: list[Panel] = field(default_factory=list)

    def reading(self, row: NodeRow, key: str) -> Reading:
        """The reading of a node; `not measured` where it has none."""
        return row.readings.get(key, NOT_MEASURED)
