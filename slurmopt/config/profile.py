"""The traces of a running run.

The job imports this module too, so it does not import Hydra or OmegaConf.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from slurmopt.config.check import readable, whole_number
from slurmopt.errors import ConfigError
from slurmopt.run_folder.json_values import from_json
from slurmopt.run_folder.traced_ranks import DEFAULT, is_word
from slurmopt.units import byte_count, seconds

OFF = "off"


@dataclass(kw_only=True)
class Profile:
    """The traces of a running run. See [Profiling](profiling.md)."""

    enabled: bool = True
    """Whether the run can be traced. A run that nobody traces is not slowed down."""

    most: str = "2GB"
    """The space that all traces of the run may take; after that no more are made."""

    count: int = 50
    """How often the run may be traced."""

    healthy: bool = False
    """Whether the run is traced once after its first half minute of steps, to compare with. It always is with
    `slow_steps`, `below_best` and `findings`."""

    every: str | None = None
    """The interval between traces, 5 minutes or more; null: none."""

    slow_steps: bool = False
    """Whether the run is traced when its steps take longer than the median and three times the median absolute
    deviation, for 15 seconds."""

    below_best: float | None = None
    """Part of the run's own best throughput by which it must fall, for 15 seconds, so that the run is traced: 0.2 for
    20 %; null: none."""

    findings: bool = False
    """Whether the run is traced when the measurements of the first node show a finding, such as `input-bound` or
    `throttled`, in the last five minutes; once for each kind in an attempt."""

    cooldown: str = "30m"
    """The least time between two traces because of `slow_steps`, `below_best` or `findings`."""

    steps: int = 5
    """How many steps such traces have."""

    ranks: list[str] = field(default_factory=lambda: [*DEFAULT])
    """Which ranks they are of, as in `--ranks`."""

    allocations: bool = False
    """Whether a function's allocations of GPU memory are noted with their lines, so that the record of a rank that runs
    out of memory names them. Each allocation takes about 2 µs more, and 100,000 of them some hundred megabytes."""

    def __post_init__(self) -> None:
        readable(self.most, byte_count, "profile.most")
        if not byte_count(self.most):
            raise ConfigError(f"{self.most!r} is not valid; valid: above 0, or profile.enabled=false", "profile.most")
        whole_number(self.count, 1, "profile.count")
        whole_number(self.steps, 1, "profile.steps", 10**6)
        readable(self.every, seconds, "profile.every")
        readable(self.cooldown, seconds, "profile.cooldown")
        if self.every is not None and seconds(self.every) < _LEAST_EVERY:
            raise ConfigError(f"{self.every!r} is not valid; valid: 5m or more", "profile.every")
        if self.below_best is not None and not 0 < self.below_best < 1:
            raise ConfigError(f"{self.below_best} is not valid; valid: between 0 and 1", "profile.below_best")
        if not self.ranks:
            raise ConfigError("has no words; valid: slowest, median, all, or numbers of ranks", "profile.ranks")
        for word in self.ranks:
            if not is_word(str(word)):
                raise ConfigError(
                    f"{word!r} is not valid; valid: slowest, median, all, or numbers of ranks", "profile.ranks"
                )


_LEAST_EVERY = 300


def check_ranks(profile: Profile, ranks: int) -> None:
    """Raises ConfigError where `profile.ranks` names one that a run of so many ranks does not have."""
    for word in map(str, profile.ranks):
        if word.isdecimal() and int(word) >= ranks:
            message = f"there is no rank {int(word)} in a run of {ranks}; valid: 0 to {ranks - 1}, slowest, median, all"
            raise ConfigError(message, "profile.ranks")


@dataclass(frozen=True, kw_only=True)
class Automatic:
    """What a rank is told of the traces that it asks for itself. Times in seconds, sizes in bytes."""

    most: int = 0
    count: int = 0
    healthy: bool = False
    every: float | None = None
    slow_steps: bool = False
    below_best: float | None = None
    findings: bool = False
    cooldown: float = 0.0
    steps: int = 5
    ranks: list[str] = field(default_factory=list)
    allocations: bool = False

    def to_json_arg(self) -> str:
        """Returns it as JSON without spaces, one argument in the job script."""
        return json.dumps(asdict(self), separators=(",", ":"))


def automatic_of(profile: Profile) -> Automatic | None:
    """What the ranks are told for a config; None if they ask for no traces."""
    triggered = profile.slow_steps or profile.below_best is not None or profile.findings
    if not (triggered or profile.healthy or profile.every is not None or profile.allocations):
        return None
    return Automatic(
        most=byte_count(profile.most),
        count=profile.count,
        healthy=profile.healthy or triggered,
        every=None if profile.every is None else seconds(profile.every),
        slow_steps=profile.slow_steps,
        below_best=profile.below_best,
        findings=profile.findings,
        cooldown=seconds(profile.cooldown),
        steps=profile.steps,
        ranks=[str(word) for word in profile.ranks],
        allocations=profile.allocations,
    )


def from_word(word: str) -> Automatic | None:
    """Parses `--profile`: None for `off`. Raises ValueError if it is invalid."""
    return None if word == OFF else from_json(Automatic, word)
