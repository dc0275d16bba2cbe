"""The evidence that findings are drawn from: one attempt as plain values. Times are in seconds, sizes in bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from slurmopt.ledger.buckets import COMMUNICATION, COMPUTE, bucket_of

Points = tuple[tuple[float, float], ...]
"""(time, value), oldest first."""
_TRAINING = ("running", "communication", "input", "checkpoint")


@dataclass(frozen=True, kw_only=True)
class ConfigFacts:
    """What the config asked for. None: it did not say, or that is not known."""

    nodes: int | None = None
    gpus_per_node: int | None = None
    tasks_per_node: int | None = None
    cpus_per_task: int | None = None
    memory: float | None = None
    """Bytes for each node."""
    time: float | None = None
    """The time limit."""
    exclude: str | None = None
    """Nodes that are excluded already."""
    exclusive: bool = False
    checkpoint: Mapping[str, str] = field(default_factory=dict)
    """Enabled tier, the fastest first → its `every`."""
    buffers: int = 2
    side_by_side: int = 1
    """Points of a sweep that share the resources."""
    sweep: bool = False
    """Whether the run is a point of a sweep."""
    compile_cache: bool = False
    """Whether TORCHINDUCTOR_CACHE_DIR is set."""
    staged: str | None = None
    """The name of a source that is staged, whose copies are not kept."""


@dataclass(frozen=True, kw_only=True)
class RankEvidence:
    """One rank."""

    rank: int
    node: str
    gpus: float = 1.0
    """How many of the allocated GPUs (CPUs) it uses."""
    devices: tuple[int, ...] = ()
    """The indexes of its GPUs on the node; empty where they are not known."""
    spent: Mapping[str, float] = field(default_factory=dict)
    """Activity → seconds, as in `slurmopt.run_folder.heartbeat.Heartbeat.spent`."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Activity → its share of the time since the first step, by the series; empty without a series."""
    counted: Mapping[str, float] = field(default_factory=dict)
    steps: float = 0.0
    """Steps after the first that it reported."""
    steps_per_second: float | None = None
    """From the first to the last reported step."""
    compute: float | None = None
    """DDP's timing, seconds of each step: forward and backward without waiting for other ranks."""
    exposed: float | None = None
    """The same: communication that no computation hides."""
    memory_points: Points = ()
    """Main memory (PSS) of its process, over time."""
    workers_points: Points = ()
    """The same of the processes below it."""

    def seconds(self, *activities: str) -> float:
        return sum(self.spent.get(activity, 0.0) for activity in activities)

    @property
    def training(self) -> float:
        """Seconds in which steps were made: computing, waiting for input, and blocked by saves."""
        return self.seconds(*_TRAINING)

    @property
    def waiting(self) -> float:
        """The share of its training time that it waits for input. The wait for the first batch, in which a loader
        starts its workers, does not count where a series tells it apart."""
        training = sum(self.shares.get(activity, 0.0) for activity in _TRAINING)
        if training > 0:
            return self.shares.get("input", 0.0) / training
        return self.seconds("input") / self.training if self.training > 0 else 0.0

    @property
    def step_seconds(self) -> float | None:
        """The mean duration of a step without evaluations and saves; None where no steps were reported."""
        stepping = self.seconds("running", "communication", "input")
        return (stepping / self.steps or None) if self.steps > 0 and stepping > 0 else None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured of a GPU or node. Columns are named as in a series of the run folder, without `gpuN.`."""

    means: Mapping[str, float] = field(default_factory=dict)
    """Column → its mean while steps were made."""
    peaks: Mapping[str, float] = field(default_factory=dict)
    """Column → its largest interval during the attempt."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Column → why it has no values."""
    memory_points: Points = ()
    """The memory in use over time, without the page cache."""

    def share(self, *columns: str) -> float:
        """The largest mean of these columns; 0 where none was measured."""
        return max((self.means.get(column, 0.0) for column in columns), default=0.0)


@dataclass(frozen=True, kw_only=True)
class GpuEvidence(Measured):
    """One GPU of a node."""

    node: str
    index: int
    name: str = ""
    memory: float | None = None
    """The size of its memory."""
    power_limit: float | None = None
    """Watts."""
    mig: bool = False
    ranks: tuple[int, ...] | None = None
    """The ranks that use it; None where that is not known."""


@dataclass(frozen=True, kw_only=True)
class NodeEvidence(Measured):
    """One node."""

    node: str
    cpus: float | None = None
    """The CPUs that the step may use."""
    memory_limit: float | None = None
    """Of the step, else of the machine."""
    memory_full: float | None = None
    """The highest memory of the step, without the page cache."""


@dataclass(frozen=True, kw_only=True)
class HangFacts:
    """What the watchdog found."""

    rank: int | None = None
    node: str | None = None
    step: int | None = None
    seconds: float = 0.0
    """How long there was no step."""
    phase: str | None = None
    silent: tuple[int, ...] = ()
    """Ranks that sent no heartbeats."""
    alike: int = 1
    """Ranks that were as far as `rank`: of several it is not known which stopped first."""


@dataclass(frozen=True, kw_only=True)
class AttemptEvidence:
    """One attempt."""

    number: int = 0
    seconds: float
    """The length of its allocation."""
    unit: str = "GPU"
    gpus: Mapping[str, float] = field(default_factory=dict)
    """Node → allocated GPUs (CPUs, where `unit` is CPU)."""
    had: float | None = None
    """GPU-seconds, where that is not `gpus` times its length: of a point that shared its GPUs with others."""
    ranks: tuple[RankEvidence, ...] = ()
    devices: tuple[GpuEvidence, ...] = ()
    nodes: tuple[NodeEvidence, ...] = ()
    window: float = 0.0
    """Seconds from the first step of the last rank to the last step: what all means are of."""
    rates: Points = ()
    """Work per second of stepping, over time, of one rank: evaluations and saves are left out."""
    rates_of: str = "steps"
    """What `rates` count: tokens or samples where the training tells them."""
    events: tuple[Mapping[str, Any], ...] = ()
    """Events of the series, each with `node`."""
    hang: HangFacts | None = None
    buckets: Mapping[str, float] | None = None
    """The ledger of the attempt: bucket → GPU-seconds; None where it was not computed."""
    config: ConfigFacts = ConfigFacts()
    cause: str | None = None
    """Why it ended: a word of `slurmopt.restart.causes`."""
    alive: bool = False
    end: float = 0.0
    """When it ended, or now."""
    step: int | None = None
    total_steps: int | None = None
    saves: int | None = None
    """How many saves the attempt made."""

    @property
    def allocated(self) -> float:
        """GPU-seconds."""
        return self.seconds * sum(self.gpus.values()) if self.had is None else self.had

    @property
    def has_gpus(self) -> bool:
        return self.unit == "GPU"

    def bucket(self, *names: str) -> float:
        """GPU-seconds of these buckets: of the ledger, else by what the ranks spent."""
        if self.buckets is not None:
            return sum(self.buckets.get(name, 0.0) for name in names)
        return sum(
            seconds * rank.gpus
            for rank in self.ranks
            for activity, seconds in rank.spent.items()
            if bucket_of(activity) in names
        )

    def hours(self, gpu_seconds: float, *names: str) -> float:
        """GPU-hours, never more than what these buckets hold, nor than the allocation."""
        most = min(self.bucket(*names), self.allocated) if names else self.allocated
        return max(0.0, min(gpu_seconds, most)) / 3600

    @property
    def communication(self) -> tuple[str, ...]:
        """The bucket in which exposed communication is: its own, or that of computing where it is not told apart."""
        return (COMMUNICATION,) if self.bucket(COMMUNICATION) > 0 else (COMPUTE,)

    @property
    def steps_per_second(self) -> float | None:
        return min((rank.steps_per_second for rank in self.ranks if rank.steps_per_second), default=None)

    def allocated_devices(self, node: str) -> list[GpuEvidence] | None:
        """The allocated GPUs of a node; None where the sampler saw fewer. Where Slurm does not confine devices it sees
        those of other jobs too: then those that ranks use, if these are as many as were allocated."""
        here = [device for device in self.devices if device.node == node]
        if len(here) > self.gpus.get(node, 0.0):
            here = [device for device in here if device.ranks]
        return here if len(here) >= self.gpus.get(node, 0.0) else None

    def used_devices(self) -> list[GpuEvidence]:
        """The GPUs that ranks use; where that is not known, all of a node that has no more than were allocated."""
        seen = Counter(device.node for device in self.devices)
        return [
            device
            for device in self.devices
            if device.ranks or (device.ranks is None and seen[device.node] <= self.gpus.get(device.node, 0.0))
        ]

    def ranks_of(self, node: str) -> list[RankEvidence]:
        return self._by_node.get(node, [])

    @cached_property
    def _by_node(self) -> dict[str, list[RankEvidence]]:
        found: dict[str, list[RankEvidence]] = {}
        for rank in self.ranks:
            found.setdefault(rank.node, []).append(rank)
        return found


def mean(values: Sequence[float], weights: Sequence[float] | None = None) -> float | None:
    """The weighted mean; None without values or weight."""
    weights = [1.0] * len(values) if weights is None else weights
    total = sum(weights)
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / total if total > 0 else None
