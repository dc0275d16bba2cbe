"""The monitoring of the job while it runs.

The job imports this module too, so it does not import Hydra or OmegaConf.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from slurmopt.config.check import one_of, readable
from slurmopt.errors import ConfigError
from slurmopt.run_folder.json_values import from_json
from slurmopt.units import seconds

SOURCES = ("gpu", "node", "network", "ranks")
"""The words of `monitor.sources`."""
_MOST_SECONDS = 300


@dataclass(kw_only=True)
class Monitor:
    """The monitoring of the job while it runs. See [Monitoring](monitoring.md)."""

    heartbeat: str = "10s"
    """The maximum interval between two heartbeats of a rank."""

    sampler: bool = True
    """Whether a process on each node measures GPUs, CPUs, memory, network and ranks, and writes a series into the run
    folder (`slurmopt metrics`)."""

    every: str = "5s"
    """The interval between two measurements of the sampler, 1 second to 5 minutes. A row of the series is the mean over
    ten seconds, or over this interval if it is longer."""

    sources: list[str] = field(default_factory=lambda: [*SOURCES])
    """What the sampler measures: `gpu`; `node` (CPUs, memory and files of the step); `network` (interfaces, InfiniBand,
    EFA); `ranks` (their steps, and what they spend their time on)."""

    def __post_init__(self) -> None:
        readable(self.heartbeat, seconds, "monitor.heartbeat")
        readable(self.every, seconds, "monitor.every")
        if self.every is None or not 1 <= seconds(self.every) <= _MOST_SECONDS:
            raise ConfigError(f"{self.every!r} is not valid; valid: 1s to 5m", "monitor.every")
        if not self.sources:
            raise ConfigError(f"has no words; valid: {', '.join(SOURCES)}, or monitor.sampler=false", "monitor.sources")
        for source in self.sources:
            one_of(source, SOURCES, "monitor.sources")


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What a rank is told of the sampler."""

    every: float = 5.0
    """Seconds between two measurements."""
    sources: list[str] = field(default_factory=lambda: [*SOURCES])

    def to_json_arg(self) -> str:
        """Returns it as JSON without spaces, one argument in the job script; omits the sources where it is all."""
        told = asdict(self)
        if self.sources == [*SOURCES]:
            del told["sources"]
        return json.dumps(told, separators=(",", ":"))


def sampling_of(monitor: Monitor) -> Sampling:
    """What the ranks are told for a config."""
    return Sampling(every=seconds(monitor.every), sources=list(dict.fromkeys(monitor.sources)))


def from_word(word: str) -> Sampling:
    """Parses the JSON written by `Sampling.to_json_arg`. Raises ValueError if it is invalid."""
    return from_json(Sampling, word)
