"""What the ranks of an attempt spent, in one object of its `end` event: a report on many runs reads only journals, and
the heartbeats of a sweep's points are removed at their end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.json_values import as_int, number, text

FIELD = "time_spent"
"""Its name in the `end` event."""
_MOST_ACTIVITIES = 40


@dataclass(frozen=True)
class TimeSpent:
    """Means over the ranks that wrote a heartbeat; times are seconds since the epoch."""

    ranks: int
    """How many ranks these are."""
    world_size: int | None = None
    """How many there should have been."""
    ended: int = 0
    """How many of them reported their end."""
    started: float | None = None
    seen: float | None = None
    """When they last reported."""
    spent: dict[str, float] = field(default_factory=dict)
    """Activity → seconds."""
    exposed: float | None = None
    """Seconds in which they only waited for other ranks, by DDP's own measurement of some steps."""
    gpus: int | None = None
    """How many different GPUs they used together."""
    first_step: int | None = None
    first_step_time: float | None = None
    step_time: float | None = None
    """When the first of them reported its last step."""


def of_heartbeats(beats: Iterable[Heartbeat]) -> dict[str, Any] | None:
    """The object for the `end` event, without what is not known; None where no rank says what it spent."""
    known = [beat for beat in beats if isinstance(beat.spent, dict) and beat.spent]
    if not known:
        return None
    first = min(known, key=lambda beat: number(beat.first_step_time) or float("inf"))
    gpus = {(text(beat.node), name) for beat in known if isinstance(beat.gpus, list) for name in map(text, beat.gpus)}
    told = TimeSpent(
        ranks=len(known),
        world_size=as_int(known[0].world_size),
        ended=sum(beat.outcome is not None for beat in known),
        started=_mean(beat.started for beat in known),
        seen=_mean(beat.time for beat in known),
        spent=_spent(known),
        exposed=_mean(_exposed(beat.counted) for beat in known),
        gpus=len(gpus) or None,
        first_step=as_int(first.first_step),
        first_step_time=_rounded(number(first.first_step_time)),
        step_time=_rounded(min((at for beat in known if (at := number(beat.step_time)) is not None), default=None)),
    )
    return {name: value for name, value in asdict(told).items() if value is not None}


def exposed_communication(counted: Mapping[str, float]) -> float:
    """Seconds in which a rank only waited for other ranks: the mean of the steps that DDP sampled, for all steps."""
    exposed, sampled, steps = (counted.get(name, 0.0) for name in ("ddp_exposed", "ddp_sampled", "steps"))
    return exposed / sampled * steps if sampled > 0 and exposed > 0 and steps > 0 else 0.0


def of_event(end: Mapping[str, Any]) -> TimeSpent | None:
    """The object of an `end` event; a field of a wrong type counts as missing. None where the event has none."""
    value = end.get(FIELD)
    ranks = as_int(value.get("ranks")) if isinstance(value, dict) else None
    if not isinstance(value, dict) or ranks is None or not 0 < ranks < 10**7:
        return None
    spent = value.get("spent")
    return TimeSpent(
        ranks=ranks,
        world_size=as_int(value.get("world_size")),
        ended=as_int(value.get("ended")) or 0,
        started=number(value.get("started")),
        seen=number(value.get("seen")),
        spent=amounts(spent),
        exposed=number(value.get("exposed")),
        gpus=as_int(value.get("gpus")),
        first_step=as_int(value.get("first_step")),
        first_step_time=number(value.get("first_step_time")),
        step_time=number(value.get("step_time")),
    )


def amounts(values: Any) -> dict[str, float]:
    """The fields of an object that are numbers of 0 or more; empty for anything else."""
    if not isinstance(values, dict):
        return {}
    found = {text(name) or "?": number(value) for name, value in list(values.items())[:_MOST_ACTIVITIES]}
    return {name: value for name, value in found.items() if value is not None and value >= 0}


def _spent(beats: list[Heartbeat]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for beat in beats:
        for name, seconds in amounts(beat.spent).items():
            sums[name] = sums.get(name, 0.0) + seconds
    return {name: round(seconds / len(beats), 3) for name, seconds in sums.items() if seconds}


def _exposed(counted: Any) -> float | None:
    return exposed_communication(amounts(counted)) or None


def _mean(values: Iterable[Any]) -> float | None:
    known = [found for value in values if (found := number(value)) is not None]
    return round(sum(known) / len(known), 3) if known else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
