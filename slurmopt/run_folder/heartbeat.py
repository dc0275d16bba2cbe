"""The heartbeat file of a rank: its progress, that it is alive, and in the end its outcome."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any

from slurmopt.run_folder.access.files import read_json, replace_json
from slurmopt.run_folder.heartbeat_silence import DEFAULT_INTERVAL, silent_after
from slurmopt.run_folder.json_values import as_int, from_fields, number

_MOST_ITEMS, _LONGEST = 1000, 255
"""Items of a field, and characters of a text, that `slim` keeps."""


@dataclass
class Heartbeat:
    """What a rank says of itself. Times are seconds since the epoch."""

    rank: int
    world_size: int
    node: str
    pid: int
    interval: float | None = None
    """Seconds between two heartbeats at the most; None in those of earlier versions."""
    started: float = field(default_factory=time.time)
    time: float = 0.0
    phase: str = "starting"
    """starting, checking (its node), staging (copies to it), importing (the function), waiting (for the other ranks),
    running, restoring, saving (at a stop), ended; or a name of the training's own, such as evaluation"""
    phases: dict[str, float] = field(default_factory=dict)
    """When each phase was first entered."""
    asked: str | None = None
    """Who first asked the rank to save and stop: USR1, TERM, or file (the batch shell's)."""
    address: str | None = None
    """Where its node answers the other nodes' health checks: host:port."""
    awaits: str | None = None
    """What it waits for before its task starts, and until when: a finding of its health check that may pass."""
    step: int | None = None
    step_time: float | None = None
    """When `step` last rose."""
    total_steps: int | None = None
    first_step: int | None = None
    """The first step this attempt reported, and when: what the step rate is reckoned from."""
    first_step_time: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    history: dict[str, list[float]] = field(default_factory=dict)
    """Of rank 0: of its first metrics at most 64 values each, evenly spread over the reports of this attempt."""
    active: int = 0
    """How often, since it made no step any more, its GPU or its files were seen busy."""
    moved_bytes: int = 0
    """Of checkpoints, since the attempt began: it shows that a restore goes on."""
    spent: dict[str, float] = field(default_factory=dict)
    """Activity → seconds spent in it since `started`, by the rank's monotonic clock; they sum to its age. Activities
    are the phases above, `first step` (from running to the first reported step), `compiling` (by torch.compile after
    it), `input` (waiting for the loader),
    `checkpoint` (a save that blocks the training), and names of the training's own, 32 names at most. They exclude each
    other: what happens within another activity is not in that one.

    A function that has reported no step yet is in its `first step`; once it has ended well without one, that was
    `running`. A command is `running` until a child of it reports. Its children's measurements are as of their last
    message: until the next one, up to a second or a step later, the time counts as what they did then. Communication
    that the training waits for is within `running`: of N `counted` steps about N · ddp_exposed / ddp_sampled seconds.
    """
    counted: dict[str, float] = field(default_factory=dict)
    """What the training has counted since the attempt began; a name is missing where it was not measured. Sums: steps,
    tokens, samples, flops (of the model), hardware_flops (with what is computed twice); of DistributedDataParallel the
    number of its samples, `ddp_sampled` (0 where torch gave none), and their seconds: ddp_forward, ddp_backward (its
    end does not wait for other ranks: the slow rank has the largest), ddp_communication, and of that ddp_exposed, in
    which nothing was computed; of torch.compile the `compiled_graphs`, their `graph_breaks`, and how often it was
    `recompiled` after the first step; of `slurmopt.training.loader` the loader_batches, and the seconds that they cost
    its workers: loader_fetch (in the dataset), of that loader_fetch_cpu (on a CPU), loader_collate, and loader_copy (to
    the GPU). Maxima, in bytes of GPU memory: memory_allocated_peak, memory_reserved_peak (by torch).
    """
    gpus: list[str] = field(default_factory=list)
    """The GPUs that the rank uses, by UUID where NVML knows it, else as the environment names them."""
    launches: int = 1
    """How many ranks the command of this process starts: with `task.per` node as many as torchrun is told, else 1. 0
    where only the command knows."""
    outcome: dict[str, Any] | None = None
    """Set when the rank ends: see `slurmopt.run_folder.outcome`."""

    @property
    def silent_after(self) -> float:
        """Seconds after which this heartbeat no longer shows that the rank lives."""
        interval = number(self.interval)  # anybody may have edited the file
        return silent_after(DEFAULT_INTERVAL if interval is None else interval)

    def write(self, path: Path) -> None:
        self.time = time.time()
        replace_json(path, asdict(self))


def read(path: Path) -> Heartbeat | None:
    """The rank's last heartbeat, or None where it has not written one."""
    value = read_json(path)
    if value is None:
        return None
    try:
        return from_fields(Heartbeat, value)
    except TypeError:  # written by a foreign hand: it lacks what every heartbeat has
        return None


def slim(beat: Heartbeat) -> Heartbeat:
    """The heartbeat without long texts and nested values, for those who keep thousands of them: anybody may have
    written megabytes into each."""
    return Heartbeat(**{item.name: _slim(getattr(beat, item.name)) for item in fields(beat)})


def _slim(value: Any) -> Any:
    if isinstance(value, dict):
        plain = ((str(name)[:_LONGEST], item) for name, item in value.items() if _is_plain(item))
        return dict(islice(plain, _MOST_ITEMS))
    if isinstance(value, list):
        return [item for item in value[:_MOST_ITEMS] if _is_plain(item)]
    return value[:_LONGEST] if isinstance(value, str) else value


def _is_plain(value: Any) -> bool:
    return len(value) <= _LONGEST if isinstance(value, str) else not isinstance(value, (dict, list))


def last_step(beats: Mapping[int, Heartbeat]) -> int | None:
    """The last step that any of the ranks reported."""
    return max((step for beat in beats.values() if (step := as_int(beat.step)) is not None), default=None)
