"""What each attempt of a run did and cost, from its journal and its ranks' heartbeats. Arithmetic; nothing is asked.

Definitions (steps as the training reports them, times in seconds):

    last step      of an attempt: what its `end` says, else the highest that a rank's heartbeat has
    base           the step it went on from: the one it restored, else its first reported step - 1, else 0
    steps done     last step - base
    steps lost     last step - base of the next attempt that came as far as having one; while there is none: last step -
                   newest durable step, where that is known and the run has not finished. Never negative
    queue          from the end, the requeue or the submission (the latest that the journal has) to the start of the
                   batch shell; after an attempt that died without a word from its last heartbeat
    restart        from the start of the batch shell (the nodes are granted) to the first new step, in these parts:
        shell        until the last rank's process has started
        check        until the nodes' health is checked
        rendezvous   until all ranks have met
        setup        until the restore begins: imports, the model, the data
        restore      until the state is restored
        first step   until the first step is done
    spent          nodes times the time from the start of the batch shell to the attempt's end; GPUs likewise
    lost           of what was spent: restarts, attempts that made no step though others did, and the steps lost, each
                   at its attempt's mean pace
    efficiency     1 - lost / spent

A part that nothing tells of counts for the one after it. Of an attempt with many ranks the first eight are looked at:
the others wait for them at the rendezvous anyway.
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
_PARTS = ("shell", "check", "rendezvous", "setup", "restore", "first step")


@dataclass
class Seen:
    """What the heartbeats of an attempt's ranks say together. Times are seconds since the epoch."""

    latest: float | None = None
    """When one was last written."""
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
    """One attempt in the history. None where nothing tells."""

    attempt: Attempt
    started: float | None
    ended: float | None
    """None while it runs, and where nobody knows."""
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
    """Seconds a step took."""

    @property
    def cause(self) -> str | None:
        """Why it ended; before causes were noted: how."""
        return self.attempt.cause or text((self.attempt.end or {}).get("outcome"))

    @property
    def lost_seconds(self) -> float:
        """Of its time what brought nothing that lasts, in a run that reports steps."""
        if self.last is None:
            return self.seconds or 0.0
        return min((self.restart or 0.0) + (self.lost or 0) * (self.pace or 0.0), self.seconds or 0.0)


def entries(folder: RunFolder, attempts: Sequence[Attempt], now: float, alive: bool) -> list[Entry]:
    """All attempts, oldest first. `alive`: the latest one may still run."""
    found: list[Entry] = []
    for attempt in attempts:
        runs = alive and attempt is attempts[-1] and attempt.end is None
        found.append(_entry(attempt, seen(folder, attempt.number), found[-1] if found else None, now if runs else None))
    _tell_lost(found)
    return found


def seen(folder: RunFolder, attempt: int) -> Seen:
    """Reads the heartbeats of an attempt; a field of a wrong type counts as missing."""
    found = Seen()
    for rank in folder.ranks_with_heartbeats(attempt)[:_RANKS]:
        beat = progress.read(folder, attempt, rank)
        if beat is None:
            continue
        found.latest = _later(found.latest, number(beat.time))
        found.started = _later(found.started, number(beat.started))
        for phase, since in beat.phases.items() if isinstance(beat.phases, dict) else ():
            if (entered := number(since)) is not None:
                found.phases[str(phase)] = max(entered, found.phases.get(str(phase), entered))
        if found.first_time is None:  # of the first rank that reports: others may report more rarely
            found.first_step, found.first_time = as_int(beat.first_step), number(beat.first_step_time)
        if (step := as_int(beat.step)) is not None and step > (-1 if found.step is None else found.step):
            found.step, found.step_time = step, number(beat.step_time) or number(beat.time)
    return found


def _entry(attempt: Attempt, beats: Seen, before: Entry | None, now: float | None) -> Entry:
    started, ended = attempt.started, None if now is not None else _end(attempt, beats)
    until = now if now is not None else ended
    base, last = _base(attempt, beats), beats.step if attempt.step is None else attempt.step
    parts = _parts(attempt, beats) if beats.first_time is not None else {}
    restart = sum(parts.values()) if parts else None
    done = None if last is None else max(0, last - (base or 0))
    queued = _later(attempt.queued, before.ended if before else None)
    return Entry(
        attempt=attempt,
        started=started,
        ended=ended,
        seconds=_span(started, until),
        nodes=_count(attempt.nodes),
        base=base,
        last=last,
        done=done,
        lost=None,
        queue=_span(queued, started),
        parts=parts,
        restart=restart,
        pace=_pace(beats, done, until),
    )


def _end(attempt: Attempt, beats: Seen) -> float | None:
    """By its own account; else its last sign of life."""
    return attempt.ended or _later(beats.latest, attempt.started if attempt.end is not None else None)


def _base(attempt: Attempt, beats: Seen) -> int | None:
    restored = as_int((attempt.restored or {}).get("step"))
    if restored is not None:
        return restored
    return None if beats.first_step is None else max(0, beats.first_step - 1)


def _parts(attempt: Attempt, beats: Seen) -> dict[str, float]:
    """How long each part of the restart took."""
    marks = {
        "shell": beats.started,
        "check": _left(beats.phases, "checking"),
        "rendezvous": _left(beats.phases, "waiting"),
        "setup": beats.phases.get("restoring"),
        "restore": number((attempt.restored or {}).get("time")),
        "first step": beats.first_time,
    }
    parts: dict[str, float] = {}
    before = attempt.started
    for name in _PARTS:
        mark = marks[name]
        if before is not None and mark is not None and mark <= (beats.first_time or mark):
            parts[name] = max(0.0, mark - before)
            before = max(before, mark)
    return parts


def _left(phases: dict[str, float], phase: str) -> float | None:
    """When the ranks left it: the entry into the phase that followed."""
    entered = phases.get(phase)
    later = [time for name, time in phases.items() if entered is not None and name != phase and time >= entered]
    return min(later, default=None)


def _pace(beats: Seen, done: int | None, until: float | None) -> float | None:
    steps = None if beats.step is None or beats.first_step is None else beats.step - beats.first_step
    if steps:
        return max(0.0, (beats.step_time or 0.0) - (beats.first_time or 0.0)) / steps
    return (_span(beats.first_time, until) or 0.0) / done if done and beats.first_time is not None else None


def _tell_lost(found: list[Entry]) -> None:
    """The steps that each attempt lost."""
    following: int | None = None
    for index in range(len(found) - 1, -1, -1):
        entry = found[index]
        kept = following
        if kept is None and entry.cause != causes.FINISHED and entry.attempt.end is not None:
            durable = as_int(entry.attempt.end.get("durable"))
            kept = entry.attempt.durable if durable is None else durable
        if entry.last is not None:
            is_final = following is None and entry.cause == causes.FINISHED
            entry.lost = 0 if is_final else None if kept is None else max(0, entry.last - kept)
        if entry.base is not None or entry.last is not None:
            following = entry.base or 0


def totals(
    found: Sequence[Entry], since: float | None, until: float | None, gpus: Sequence[int | None]
) -> dict[str, Any]:
    """The sums. `since` and `until`: of the whole run; `gpus`: on each node, of each attempt."""
    reports = any(entry.last is not None for entry in found)
    spent = [entry.nodes * (entry.seconds or 0.0) / 3600 for entry in found]
    lost = [entry.nodes * entry.lost_seconds / 3600 for entry in found]
    with_gpus = any(gpus)
    done = _sum(entry.done for entry in found)
    return {
        "attempts": len(found),
        "causes": dict(Counter(entry.cause for entry in found if entry.cause)),
        "wall_seconds": _span(since, until),
        "run_seconds": _sum(entry.seconds for entry in found),
        "queue_seconds": _sum(entry.queue for entry in found),
        "restart_seconds": _sum(entry.restart for entry in found),
        "restore_seconds": _sum(entry.parts.get("restore") for entry in found),
        "last_step": max((entry.last for entry in found if entry.last is not None), default=None),
        "steps_done": done,
        "steps_lost": _sum(entry.lost for entry in found),
        "steps_per_attempt": done / len(found) if done is not None else None,
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
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _count(nodes: str | None) -> int:
    """How many nodes a hostlist names; 1 where nobody can read it."""
    try:
        return max(1, len(expand(nodes or "")))
    except ValueError:
        return 1


def _span(since: float | None, until: float | None) -> float | None:
    return None if since is None or until is None else max(0.0, until - since)


def _later(one: float | None, other: float | None) -> float | None:
    return max((time for time in (one, other) if time is not None), default=None)
