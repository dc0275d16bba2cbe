"""Builds the records of a run's attempts from its journal, heartbeats and series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slurmopt.ledger.record import AttemptRecord, Sample
from slurmopt.report.records.allocation import Allocation, allocation
from slurmopt.report.records.rank_records import Ranks, of_summary, rank_records, with_missing
from slurmopt.run_folder.attempts import Attempt, Event
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.json_values import as_int, number, text
from slurmopt.run_folder.series.series import Series
from slurmopt.run_folder.time_spent import TimeSpent

_LATEST = 1e11


@dataclass(frozen=True)
class Sources:
    """What was read of one attempt."""

    attempt: Attempt
    event: Event = field(default_factory=dict)
    """Its `attempt` event; empty where that is lost."""
    beats: Mapping[int, Heartbeat] = field(default_factory=dict)
    series: Mapping[str, Series] = field(default_factory=dict)
    samples: Mapping[int, tuple[Sample, ...]] = field(default_factory=dict)
    resources: Mapping[str, object] = field(default_factory=dict)
    """That group of the config with which it ran."""
    told: TimeSpent | None = None
    """The means over its ranks, used where there are no `beats`."""


def attempt_record(sources: Sources, queued: float | None, now: float | None) -> tuple[AttemptRecord, Ranks] | None:
    """The record of an attempt, and its ranks. `now`: where it may still run. None where nothing tells when it
    began."""
    attempt, beats = sources.attempt, sources.beats
    told = sources.told
    seen = [_time(beat.time) for beat in beats.values()] or [_time(told.seen) if told else None]
    starts = [_time(beat.started) for beat in beats.values()] or [_time(told.started) if told else None]
    start = _time(attempt.started) or min((time for time in starts if time is not None), default=None)
    if start is None:
        return None
    end, notes = _end(attempt, max((time for time in seen if time is not None), default=None), start, now)
    had = allocation(
        attempt.nodes,
        sources.event,
        sources.resources,
        sources.series,
        (text(beat.node) or "?" for beat in beats.values()),
    )
    ranks = _ranks(sources, had, start)
    notes += [*had.notes, *_missing(ranks)]
    hang, stalled = attempt.hang or {}, number((attempt.hang or {}).get("seconds")) or 0.0
    hang_time = _time(hang.get("time"))
    return AttemptRecord(
        number=attempt.number,
        start=start,
        end=end,
        gpus=had.units,
        ranks=tuple(ranks.records),
        alive=now is not None,
        cause=attempt.cause,
        stalled_seconds=max(0.0, stalled),
        restored_step=as_int((attempt.restored or {}).get("step")),
        durable_step=_durable(attempt),
        durable_since=_time(attempt.durable_since) if _durable(attempt) == attempt.durable else None,
        unit=had.unit,
        queued=queued,
        began=None if attempt.end is None or "began" not in attempt.end else attempt.began,
        stalled_since=None if hang_time is None or stalled <= 0 else hang_time - stalled,
        notes=tuple(notes),
    ), ranks


def _ranks(sources: Sources, had: Allocation, start: float) -> Ranks:
    restored = _time((sources.attempt.restored or {}).get("time"))
    if not sources.beats and sources.told is not None:
        return of_summary(sources.told, had, start, sources.attempt.step)
    ranks = rank_records(sources.beats, had, restored, sources.samples)
    return with_missing(ranks, had, start)


def _missing(ranks: Ranks) -> Sequence[str]:
    if not ranks.missing:
        return ()
    return (f"{ranks.missing:,} of {ranks.world_size:,} ranks left no heartbeat: what their GPUs did is unknown",)


def _end(attempt: Attempt, seen: float | None, start: float, now: float | None) -> tuple[float, list[str]]:
    """When an attempt ended, and a note where that is an estimate."""
    if now is not None:
        return max(now, start), []
    if (ended := _time(attempt.ended)) is not None:
        return ended, []
    if seen is not None:
        return max(seen, start), ["it left no word of its end: it counts until its newest heartbeat"]
    return start, ["nothing tells when it ended: it counts as 0 seconds"]


def _durable(attempt: Attempt) -> int | None:
    told = as_int((attempt.end or {}).get("durable"))
    return max((step for step in (told, attempt.durable) if step is not None), default=None)


def _time(value: object) -> float | None:
    found = number(value)
    return found if found is not None and 0 < found < _LATEST else None
