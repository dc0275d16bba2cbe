"""When a run comes back, how often for which cause, and when it stops for good."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields

from slurmopt.config.check import at_least, one_of, readable
from slurmopt.errors import ConfigError, one_line
from slurmopt.units import seconds

SIGNALS = ("USR1", "USR2", "INT", "TERM", "HUP", "CONT")
AFTER_SIGNAL = ("continue", "finished")
_CAUSES_OF_TEXT = ("infrastructure", "user_error", "out_of_memory", "gpu_out_of_memory", "node_failure", "hang")
_MOST = 1_000_000


@dataclass(kw_only=True)
class Budgets:
    """How often a run comes back after each cause; null is without limit, as long as it makes progress."""

    time_limit: int | None = None
    """The time limit came near."""

    preemption: int | None = None
    """A job of higher priority took the nodes."""

    requeued: int | None = None
    """An administrator requeued the job."""

    asked: int | None = None
    """The training asked for it: `Requeue`, exit status 75, the requeue file."""

    node_failure: int | None = 10
    """A node died, or was cut off."""

    hang: int | None = 3
    """No rank made a step for `restart.hang_after`."""

    infrastructure: int | None = 5
    """NCCL, CUDA, ECC, the network, a file system, a node that failed its health check."""

    killed: int | None = 3
    """A rank was killed, and nothing tells by whom."""

    unknown: int | None = 3
    """Nothing tells why it ended."""

    out_of_memory: int | None = 0
    """The host's memory was too small: it will be so again. `slurmopt retry RUN --more-memory 1.5` helps."""

    gpu_out_of_memory: int | None = 0
    """The GPU's memory was too small."""

    user_error: int | None = 0
    """The training raised, or its command failed."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value, key = getattr(self, item.name), f"restart.budgets.{item.name}"
            at_least(value, 0, key)
            if value is not None and value > _MOST:
                raise ConfigError(f"{value} is too many; valid: 0 to {_MOST:,}, or null for no limit", key)


@dataclass(kw_only=True)
class Exclude:
    """Nodes that are left out of the next attempts: those that failed a health check or the run."""

    nodes: int = 2
    """How many at most, the latest first; 0 switches it off."""

    span: str = "6h"
    """For how long."""

    def __post_init__(self) -> None:
        at_least(self.nodes, 0, "restart.exclude.nodes")
        readable(self.span, seconds, "restart.exclude.span")


@dataclass(kw_only=True)
class Restart:
    """When a run comes back, how often for which cause, and when it stops for good."""

    lead: str = "auto"
    """How long before the time limit the job is told to save and stop (`--signal=B:USR1@LEAD`). `auto`: from how long
    this run's checkpoints took to become durable, where that is known; else two minutes, or a quarter of a limit that
    is shorter than eight. Within the job `auto` waits for the last moment that leaves the time to save."""

    forward: str | None = None
    """The signal that a `task.command` gets at that moment: USR1, USR2, INT, TERM, HUP or CONT. Default: none."""

    exit_after_signal: str = "continue"
    """What it means that the training ends without an error (exit status 0, a return) after it was told to leave.
    `continue`: the run goes on, for many programs leave like that on SIGTERM. `finished`: it has finished."""

    budgets: Budgets = field(default_factory=Budgets)
    """How often it comes back after each cause."""

    no_progress: int = 2
    """So many attempts in a row that add no checkpointed step stop the run, whatever the budgets."""

    hang_after: str = "auto"
    """How long no rank may make a step before the attempt counts as hung and is ended. `auto`: many times the slowest
    step so far, at least five minutes, and longer than `network.timeout`; `off`: never."""

    patterns: dict[str, str] = field(default_factory=dict)
    """Causes of your own: a regular expression, looked for in the failing rank's error and log → `infrastructure`,
    `user_error`, `out_of_memory`, `gpu_out_of_memory`, `node_failure` or `hang`. They win over the built-in ones."""

    exclude: Exclude = field(default_factory=Exclude)
    """Nodes that are left out of the next attempts."""

    def __post_init__(self) -> None:
        if str(self.hang_after).lower() == "false":  # YAML's own reading of a bare off
            self.hang_after = "off"
        _time_or(self.lead, ("auto",), "restart.lead")
        _time_or(self.hang_after, ("auto", "off"), "restart.hang_after")
        at_least(self.no_progress, 1, "restart.no_progress")
        if self.forward is not None:
            one_of(self.forward, SIGNALS, "restart.forward")
        one_of(self.exit_after_signal, AFTER_SIGNAL, "restart.exit_after_signal")
        for pattern, cause in self.patterns.items():
            _check_pattern(str(pattern), cause)


def _time_or(value: str, words: tuple[str, ...], key: str) -> None:
    try:
        readable(None if value in words else value, seconds, key)
    except ConfigError as error:
        raise ConfigError(f"{str(error).removeprefix(key + ': ')}; or {', '.join(words)}", key) from error


def _check_pattern(pattern: str, cause: str) -> None:
    key = f"restart.patterns[{one_line(pattern)!r}]"
    try:
        matches_all = re.compile(pattern).search("") is not None
    except re.error as error:
        raise ConfigError(f"is no regular expression: {error}", key) from error
    if matches_all:
        raise ConfigError("matches any text, the empty one too; valid: words of the error that you mean", key)
    one_of(cause, _CAUSES_OF_TEXT, key)
