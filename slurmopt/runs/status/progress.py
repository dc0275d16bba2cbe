"""Reads a run's progress from its ranks' heartbeats."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any

from slurmopt.run_folder import heartbeat, heartbeat_silence, loader_costs
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.json_values import as_int, number, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.loader_costs import LoaderCosts
from slurmopt.runs import stored_config
from slurmopt.units import seconds

_STILL_SECONDS, _STILL_STEPS = 30.0, 20.0
_MOST_VALUES = 64


@dataclass
class Progress:
    """The progress of an attempt, from the lowest rank that has a heartbeat."""

    step: int | None = None
    total_steps: int | None = None
    steps_per_second: float | None = None
    eta_seconds: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    history: dict[str, list[float]] = field(default_factory=dict)
    """Earlier values of some metrics in this attempt, evenly spread."""
    heartbeat: float | None = None
    """When it was written (seconds since the epoch)."""
    interval: float | None = None
    """Seconds between two heartbeats; None where the heartbeat does not say."""
    phase: str | None = None
    since_step: float | None = None
    """Seconds from the last new step to the heartbeat, by the rank's clock."""
    awaits: str | None = None
    """What the rank waits for before its task starts."""
    loader: LoaderCosts | None = None
    """What the batches cost; None where the training does not measure it."""

    def before(self, metric: str) -> list[float]:
        """The values of a metric before the present one, as far as they were kept."""
        values = self.history.get(metric, [])
        return values[:-1] if values and values[-1] == float(f"{self.metrics.get(metric, 0.0):.6g}") else values


def progress(folder: RunFolder, attempt: int) -> Progress | None:
    """The progress of an attempt: of rank 0, or of the first rank that has a heartbeat where rank 0 has none yet."""
    beat = read(folder, attempt, 0)
    if beat is None:
        others = folder.ranks_with_heartbeats(attempt)
        beat = read(folder, attempt, others[0]) if others else None
    return None if beat is None else from_heartbeat(beat)


def read(folder: RunFolder, attempt: int, rank: int) -> Heartbeat | None:
    """A rank's heartbeat; None where there is none, or it cannot be read."""
    with contextlib.suppress(OSError, RecursionError):
        return heartbeat.read(folder.heartbeat(attempt, rank))
    return None


def is_fresh(folder: RunFolder, progress: Progress | None, now: float) -> bool:
    """Whether the heartbeat of `progress` shows that its rank lives."""
    if progress is None or progress.heartbeat is None:
        return False
    return now - progress.heartbeat < silent_after(folder, progress.interval)


def silent_after(folder: RunFolder, interval: float | None) -> float:
    """Seconds after which a heartbeat no longer shows that its rank lives. `interval`: as the heartbeat has it, None in
    those of earlier versions; then the run's config tells."""
    if interval is None:
        configured = stored_config.group(folder, "monitor").get("heartbeat")
        with contextlib.suppress(ValueError):
            interval = None if configured is None else seconds(configured)
    return heartbeat_silence.silent_after(heartbeat_silence.DEFAULT_INTERVAL if interval is None else interval)


def from_heartbeat(beat: Heartbeat) -> Progress:
    """The progress in a heartbeat; fields of a wrong type count as missing."""
    step, total = as_int(beat.step), as_int(beat.total_steps)
    rate = _rate(beat, step)
    remaining = max(0, total - step) if total is not None and step is not None else None
    return Progress(
        step=step,
        total_steps=total,
        steps_per_second=rate,
        eta_seconds=remaining / rate if remaining is not None and rate and not beat.outcome else None,
        metrics=_metrics(beat.metrics),
        history=_history(beat.history),
        heartbeat=number(beat.time),
        interval=number(beat.interval),
        phase=text(beat.phase),
        since_step=_since_step(beat),
        awaits=text(beat.awaits) if not beat.outcome else None,
        loader=loader_costs.of(beat.spent, beat.counted),
    )


def from_end_event(end: dict[str, Any]) -> Progress | None:
    """The progress in the `end` event of a sweep's point, whose heartbeats are removed at its end. None where the event
    has neither a step nor metrics."""
    step, metrics = as_int(end.get("step")), _metrics(end.get("metrics"))
    return Progress(step=step, metrics=metrics) if step is not None or metrics else None


def _rate(beat: Heartbeat, step: int | None) -> float | None:
    """From the first reported step to the last one: what came after that, such as a hang or the last evaluation, does
    not count. Heartbeats of earlier versions do not tell when the last one was made."""
    first, since, until = as_int(beat.first_step), number(beat.first_step_time), number(beat.step_time or beat.time)
    if step is None or first is None or since is None or until is None or until <= since or step <= first:
        return None
    return (step - first) / (until - since)


def _since_step(beat: Heartbeat) -> float | None:
    now, last = number(beat.time), number(beat.step_time)
    return max(0.0, now - last) if now is not None and last is not None and not beat.outcome else None


def stands_still(progress: Progress) -> bool:
    """Whether a training makes no steps, though it is in none of its phases: for half a minute and for the time of
    twenty steps."""
    has_done_all = progress.total_steps is not None and (progress.step or 0) >= progress.total_steps
    if progress.since_step is None or has_done_all or progress.phase != "running" or not progress.steps_per_second:
        return False
    return progress.since_step > max(_STILL_SECONDS, _STILL_STEPS / progress.steps_per_second)


def _metrics(metrics: Any) -> dict[str, float]:
    """The metrics that are numbers. NaN is kept: a loss of NaN must be shown."""
    if not isinstance(metrics, dict):
        return {}
    return {text(key) or "?": float(value) for key, value in metrics.items() if _is_metric(value)}


def _history(history: Any) -> dict[str, list[float]]:
    """The lists of numbers, as long as a rank writes them."""
    if not isinstance(history, dict):
        return {}
    lists = {text(name): values for name, values in history.items() if isinstance(values, list)}
    kept = {name: values[:_MOST_VALUES] for name, values in lists.items() if name}
    return {name: [float(one) for one in values if _is_metric(one)] for name, values in kept.items()}


def _is_metric(value: Any) -> bool:
    return isinstance(value, float) or number(value) is not None


def silent_ranks(folder: RunFolder, attempt: int, older_than: float) -> list[int]:
    """Ranks that have not ended and whose heartbeat is older than `older_than` seconds."""
    now, silent = time.time(), []
    for rank in folder.ranks_with_heartbeats(attempt):
        beat = read(folder, attempt, rank)
        if beat is not None and not beat.outcome and now - (number(beat.time) or 0.0) > older_than:
            silent.append(rank)
    return silent
