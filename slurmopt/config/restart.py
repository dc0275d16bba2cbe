"""The restarts of a run: how often for each cause, and when it ends."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from slurmopt.config.check import at_least, one_of, readable
from slurmopt.config.resources import Resources
from slurmopt.config.task import Task
from slurmopt.errors import ConfigError, one_line
from slurmopt.restart.causes import PATTERN_KEYS, Budgets
from slurmopt.restart.policy import Policy
from slurmopt.units import seconds

SIGNALS = ("USR1", "USR2", "INT", "TERM", "HUP", "CONT")
AFTER_SIGNAL = ("continue", "finished")
_MOST = 1_000_000


@dataclass(kw_only=True)
class Exclude:
    """Exclusion of nodes from the next attempts: nodes that failed a health check, or on which the run failed."""

    nodes: int = 2
    """The maximum number of excluded nodes, the latest first; 0 disables it."""

    span: str = "6h"
    """For how long."""

    def __post_init__(self) -> None:
        at_least(self.nodes, 0, "restart.exclude.nodes")
        readable(self.span, seconds, "restart.exclude.span")


@dataclass(kw_only=True)
class Restart:
    """The restarts of a run: how often for each cause, and when it ends."""

    lead: str = "auto"
    """The time before the time limit at which the job is asked to save and stop (`--signal=B:USR1@LEAD`). `auto`:
    derived from the time in which checkpoints of this run became durable, if it is known; else two minutes, or a
    quarter of a time limit below eight minutes. In the job, `auto` delays the signal until the last moment that leaves
    enough time to save."""

    forward: str | None = None
    """The signal that is then sent to a `task.command`: USR1, USR2, INT, TERM, HUP or CONT. Default: none."""

    exit_after_signal: str = "continue"
    """The meaning of an end without an error (exit status 0, a return) after the training was asked to stop.
    `continue`: the run is restarted, because many programs exit like this on SIGTERM. `finished`: it has finished."""

    budgets: Budgets = field(default_factory=Budgets)
    """The number of restarts allowed for each cause."""

    no_progress: int = 2
    """The number of consecutive attempts without a new checkpointed step after which the run ends, independently of the
    budgets."""

    hang_after: str = "auto"
    """The time without a step of any rank after which the attempt counts as hung and is ended. `auto`: a multiple of
    the slowest step so far, at least five minutes, and longer than `network.timeout`; `off`: never."""

    patterns: dict[str, str] = field(default_factory=dict)
    """Your own causes: a regular expression that is searched in the error and the log of the failed rank →
    `infrastructure`, `user_error`, `out_of_memory`, `gpu_out_of_memory`, `node_failure` or `hang`. They take precedence
    over the built-in ones."""

    exclude: Exclude = field(default_factory=Exclude)
    """Exclusion of nodes from the next attempts."""

    def __post_init__(self) -> None:
        _check_budgets(self.budgets)
        if str(self.hang_after).lower() == "false":  # YAML reads a bare `off` as false
            self.hang_after = "off"
        _time_or(self.lead, ("auto",), "restart.lead")
        _time_or(self.hang_after, ("auto", "off"), "restart.hang_after")
        at_least(self.no_progress, 1, "restart.no_progress")
        if self.forward is not None:
            one_of(self.forward, SIGNALS, "restart.forward")
        one_of(self.exit_after_signal, AFTER_SIGNAL, "restart.exit_after_signal")
        for pattern, cause in self.patterns.items():
            _check_pattern(str(pattern), cause)


def _check_budgets(budgets: Budgets) -> None:
    for name, value in asdict(budgets).items():
        key = f"restart.budgets.{name}"
        at_least(value, 0, key)
        if value is not None and value > _MOST:
            raise ConfigError(f"{value} is too many; valid: 0 to {_MOST:,}, or null for no limit", key)


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
        raise ConfigError(f"is not a regular expression: {error}", key) from error
    if matches_all:
        raise ConfigError("matches any text, the empty one too; valid: words of the error that you mean", key)
    one_of(cause, PATTERN_KEYS, key)


def policy_of(
    restart: Restart, task: Task, resources: Resources, workdir: Path | None = None, durable: str | None = None
) -> Policy:
    """Returns the restart policy of a config, for a run in `workdir`. `durable`: the tier that must hold the last
    checkpoint before the run stops."""
    return Policy(
        budgets=asdict(restart.budgets),
        no_progress=restart.no_progress,
        patterns=dict(restart.patterns),
        exclude_nodes=restart.exclude.nodes,
        exclude_span=seconds(restart.exclude.span),
        excluded=resources.exclude,
        checkpoints=task.checkpoints,
        workdir=None if workdir is None else str(workdir),
        durable=durable,
    )
