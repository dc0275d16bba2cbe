"""Computes what each attempt of a run did and cost, from its journal and its ranks' heartbeats.

Definitions (steps as the training reports them, times in seconds):

    last step      of an attempt: what its `end` says, else the highest that a rank's heartbeat has
    base           the step it started from: the one it restored, else its first reported step - 1, else 0
    steps done     last step - base
    steps lost     last step - base of the next attempt that has one; while there is none: last step - newest durable
                   step, where that is known and the run has not finished. Never negative
    queue          from the end, the requeue or the submission (the latest that the journal has) to the start of the
                   batch shell; after an attempt that died without an `end`, from its last heartbeat
    restart        from the start of the batch shell (the nodes are granted) to the first new step, in these parts:
        shell          until the last rank's process has started
        check          until the nodes' health is checked
        rendezvous     until all ranks have met
        setup          until the restore begins: imports, the model, the data
        restore        until the state is restored
        first step     until the first step is done
    spent          nodes times the time from the start of the batch shell to the attempt's end; GPUs likewise
    lost           of what was spent: restarts, attempts that made no step though others did, and the steps lost, each
                   at its attempt's mean pace
    efficiency     1 - lost / spent

The time of a part without events counts for the part after it. Of an attempt with many ranks the heartbeats of the
first eight are read: the others wait for them at the rendezvous anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from slurmopt.restart import causes
from slurmopt.run_folder.attempts import Attempt
from slurmopt.run_folder.json_values import as_int, number, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.status import progress
from slurmopt.slurm.hostlist import expand

_RANKS = 8
_PARTS = ("shell", "check", "staging", "rendezvous", "setup", "restore", "first step")


@dataclass
class Beats:
    """The heartbeats of an attempt's ranks, combined. Times are seconds since the epoch."""

    latest: float | None = None
    """When the newest was written."""
    started: float | None = None
    """When the last of the ranks started."""
    phases: dict[str, float] = field(default_factory=dict)
    """When the last of them entered each phase."""
    first_step: int | None = None
    first_time: float | None = None
    """When the first step was reported."""
    step: int | None = None
    step_time: float | None = None


@dataclass
class Entry:
    """One attempt in the history. Fields are None where they are not known."""

    attempt: Attempt
    started: float | None
    ended: float | None
    """None while it runs, and where that is not known."""
    seconds: float | None
    nodes: int
    base: int | None
    last: int | None
    done: int | None
    lost: int | None
    queue: float | None
    parts: dict[str, float]
    """The parts of its restart."""
    restart: float | None
    pace: float | None
    """Mean seconds per step."""

    @property
    def cause(self) -> str | None:
        """Why it ended; in journals of versions that noted no cause, the outcome."""
        return self.attempt.cause or text((self.attempt.end or {}).get("outcome"))

    @property
    def lost_seconds(self) -> float:
        """Seconds without lasting progress, in a run that reports steps: the restart, and the steps that were lost."""
        if self.last is None:
            return self.seconds or 0.0
        return min((self.restart or 0.0) + (self.lost or 0) * (self.pace or 0.0), self.seconds or 0.0)


def entries(folder: RunFolder, attempts: Sequence[Attempt], now: float, alive: bool) -> list[Entry]:
    """All attempts, oldest first. `alive`: the latest one may still run."""
    result: list[Entry] = []
    for attempt in attempts:
        runs = alive and attempt is attempts[-1] and attempt.end is None
        result.append(
            _entry(attempt, read_beats(folder, attempt.number), result[-1] if result else None, now if runs else None)
        )
    _set_lost_steps(result)
    return result


def read_beats(folder: RunFolder, attempt: int) -> Beats:
    """Reads and combines the heartbeats of an attempt; a field of a wrong type counts as missing."""
    beats = Beats()
    for rank in folder.ranks_with_heartbeats(attempt)[:_RANKS]:
        beat = progress.read(folder, attempt, rank)
        if beat is None:
            continue
        beats.latest = _later(beats.latest, number(beat.time))
        beats.started = _later(beats.started, number(beat.started))
        for phase, since in beat.phases.items() if isinstance(beat.phases, dict) else ():
            if (entered := number(since)) is not None:
                beats.phases[str(phase)] = max(entered, beats.phases.get(str(phase), entered))
        if beats.first_time is None:  # the first rank that reports counts: others may report less often
            beats.first_step, beats.first_time = as_int(beat.first_step), number(beat.first_step_time)
        if (step := as_int(beat.step)) is not None and step > (-1 if beats.step is None else beats.step):
            beats.step, beats.step_time = step, number(beat.step_time) or number(beat.time)
    return beats


def _entry(attempt: Attempt, beats: Beats, previous: Entry | None, now: float | None) -> Entry:
    started, ended = attempt.started, None if now is not None else _end(attempt, beats)
    until = now if now is not None else ended
    base, last = _base(attempt, beats), beats.step if attempt.step is None else attempt.step
    parts = _parts(attempt, beats) if beats.first_time is not None else {}
    restart = sum(parts.values()) if parts else None
    steps_done = None if last is None else max(0, last - (base or 0))
    queued = _later(attempt.queued, previous.ended if previous else None)
    return Entry(
        attempt=attempt,
        started=started,
        ended=ended,
        seconds=_span(started, until),
        nodes=node_count(attempt.nodes),
        base=base,
        last=last,
        done=steps_done,
        lost=None,
        queue=_span(queued, started),
        parts=parts,
        restart=restart,
        pace=_pace(beats, steps_done, until),
    )


def _end(attempt: Attempt, beats: Beats) -> float | None:
    """When the attempt ended: by its `end` event, else by its newest heartbeat."""
    return attempt.ended or _later(beats.latest, attempt.started if attempt.end is not None else None)


def _base(attempt: Attempt, beats: Beats) -> int | None:
    restored = as_int((attempt.restored or {}).get("step"))
    if restored is not None:
        return restored
    return None if beats.first_step is None else max(0, beats.first_step - 1)


def _parts(attempt: Attempt, beats: Beats) -> dict[str, float]:
    """How long each part of the restart took."""
    marks = {
        "shell": beats.started,
        "check": _left(beats.phases, "checking"),
        "staging": _left(beats.phases, "staging"),
        "rendezvous": _left(beats.phases, "waiting"),
        "setup": beats.phases.get("restoring"),
        "restore": number((attempt.restored or {}).get("time")),
        "first step": beats.first_time,
    }
    parts: dict[str, float] = {}
    since = attempt.started
    for name in _PARTS:
        mark = marks[name]
        if since is not None and mark is not None and mark <= (beats.first_time or mark):
            parts[name] = max(0.0, mark - since)
            since = max(since, mark)
    return parts


def _left(phases: dict[str, float], phase: str) -> float | None:
    """When the ranks left `phase`: the time of the phase that followed."""
    entered = phases.get(phase)
    later = [time for name, time in phases.items() if entered is not None and name != phase and time >= entered]
    return min(later, default=None)


def _pace(beats: Beats, steps_done: int | None, until: float | None) -> float | None:
    steps = None if beats.step is None or beats.first_step is None else beats.step - beats.first_step
    if steps:
        return max(0.0, (beats.step_time or 0.0) - (beats.first_time or 0.0)) / steps
    return (_span(beats.first_time, until) or 0.0) / steps_done if steps_done and beats.first_time is not None else None


def _set_lost_steps(history_entries: list[Entry]) -> None:
    """Sets the steps that each attempt lost."""
    following: int | None = None
    for index in range(len(history_entries) - 1, -1, -1):
        entry = history_entries[index]
        kept_step = following
        if kept_step is None and entry.cause != causes.FINISHED and entry.attempt.end is not None:
            durable = as_int(entry.attempt.end.get("durable"))
            kept_step = entry.attempt.durable if durable is None else durable
        if entry.last is not None:
            is_final = following is None and entry.cause == causes.FINISHED
            entry.lost = 0 if is_final else None if kept_step is None else max(0, entry.last - kept_step)
        if entry.base is not None or entry.last is not None:
            following = entry.base or 0


def totals(
    entries: Sequence[Entry], since: float | None, until: float | None, gpus: Sequence[int | None]
) -> dict[str, Any]:
    """The totals. `since` and `until`: of the whole run; `gpus`: each attempt's GPUs per node."""
    reports = any(entry.last is not None for entry in entries)
    spent = [entry.nodes * (entry.seconds or 0.0) / 3600 for entry in entries]
    lost = [entry.nodes * entry.lost_seconds / 3600 for entry in entries]
    with_gpus = any(gpus)
    steps_done = _sum(entry.done for entry in entries)
    return {
        "attempts": len(entries),
        "causes": dict(Counter(entry.cause for entry in entries if entry.cause)),
        "wall_seconds": _span(since, until),
        "run_seconds": _sum(entry.seconds for entry in entries),
        "queue_seconds": _sum(entry.queue for entry in entries),
        "restart_seconds": _sum(entry.restart for entry in entries),
        "restore_seconds": _sum(entry.parts.get("restore") for entry in entries),
        "last_step": max((entry.last for entry in entries if entry.last is not None), default=None),
        "steps_done": steps_done,
        "steps_lost": _sum(entry.lost for entry in entries),
        "steps_per_attempt": steps_done / len(entries) if steps_done is not None else None,
        "node_hours": sum(spent),
        "node_hours_lost": sum(lost) if reports else None,
        "gpu_hours": sum(hours * (count or 0) for hours, count in zip(spent, gpus, strict=True)) if with_gpus else None,
        "gpu_hours_lost": (
            sum(hours * (count or 0) for hours, count in zip(lost, gpus, strict=True))
            if with_gpus and reports
            else None
        ),
        "efficiency": 1 - sum(lost) / sum(spent) if reports and sum(spent) > 0 else None,
    }


def _sum(values: Any) -> Any:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


def node_count(nodes: str | None) -> int:
    """The number of nodes in a hostlist; 1 where it cannot be parsed."""
    try:
        return max(1, len(expand(nodes or "")))
    except ValueError:
        return 1


def _span(since: float | None, until: float | None) -> float | None:
    return None if since is None or until is None else max(0.0, until - since)


def _later(first: float | None, second: float | None) -> float | None:
    return max((time for time in (first, second) if time is not None), default=None)
