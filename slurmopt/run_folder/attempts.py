"""The attempts of a run as its journal tells of them, oldest first. Nothing here trusts a field's type."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurmopt.run_folder import events
from slurmopt.run_folder.json_values import as_int, names, number, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.storage.kinds import KINDS, shared_kinds

Event = dict[str, Any]
_NODE_LOCAL = tuple(kind.name for kind in KINDS.values() if kind.node_local)
_ON_SHARED, _ON_NODE = ("|".join(tiers).encode() for tiers in (shared_kinds(), _NODE_LOCAL))
_DURABLE = re.compile(
    rb'"event": "checkpoint", "attempt": (\d{1,9}), "step": (\d{1,15}), "tier": "(?:' + _ON_SHARED + rb')"'
)
_PASSED_OVER = re.compile(
    rb'"event": "checkpoint(?:-pruned"|", "attempt": \d{1,9}, "step": \d{1,15}, "tier": "(?:' + _ON_NODE + rb')")'
)

_LONGEST = 4096
"""Bytes of a line on a checkpoint before its words, and behind them; ours have some hundred."""


@dataclass(slots=True)
class Attempt:
    """One start of the run, from its events."""

    number: int
    job: str | None = None
    nodes: str | None = None
    queued: float | None = None
    """Since when the job waited for this start: seconds since the epoch."""
    started: float | None = None
    """When its batch shell started."""
    log_from: int | None = None
    """How many bytes the job's log had when it started."""
    signals: list[str] = field(default_factory=list)
    """What the batch shell got: USR1, TERM."""
    restored: Event | None = None
    durable: int | None = None
    """The newest step of it that is durable where any node finds it: on a storage that is not node-local, or by a
    command's word."""
    durable_since: float | None = None
    """When the save of that step began: it was durable later. None where that is not known."""
    hang: Event | None = None
    requeue: Event | None = None
    """Its own wish to be requeued, noted before Slurm is asked."""
    refused: Event | None = None
    """Slurm's no to that wish."""
    cancelled: bool = False
    """The user cancelled the run during it."""
    end: Event | None = None
    since_retry: bool = True
    """Whether it counts for the budgets: not, where the user has asked for a retry since."""

    @property
    def terminated(self) -> bool:
        """Whether the batch shell got SIGTERM: from scancel, `scontrol requeue`, preemption, a failing node."""
        return "TERM" in self.signals or "SIGTERM" in self.signals

    @property
    def cause(self) -> str | None:
        """Why it ended; None where nothing tells (yet)."""
        cause = (self.end or {}).get("cause")
        return cause if isinstance(cause, str) else None

    @property
    def began(self) -> bool:
        """Whether the task was started on any rank; so too where nothing tells."""
        return (self.end or {}).get("began") is not False

    @property
    def pause(self) -> float:
        """Seconds from its end until the next attempt may start."""
        return number((self.end or {}).get("pause")) or 0.0

    @property
    def step(self) -> int | None:
        """The last step it is known to have done."""
        return as_int((self.end or {}).get("step"))

    @property
    def ended(self) -> float | None:
        """When it ended by its own account; the verdict of somebody who came later does not say when."""
        return None if self.end is None or "by" in self.end else _time(self.end)

    @property
    def mark(self) -> float | None:
        """When the newest file of `task.checkpoints` was written, as of its end."""
        return number((self.end or {}).get("mark"))


def attempts(folder: RunFolder) -> list[Attempt]:
    """All attempts, from the journal. Raises OSError where it cannot be read."""
    return of_events(events.parse(lines_on_attempts(folder.events)))


def lines_on_attempts(path: Path) -> Iterator[bytes]:
    """The lines of a journal. Those on checkpoints, which a long run has by the million, are left out, but for the ones
    that attempts are judged by. OSError."""
    for block in events.blocks(path):
        of_checkpoints = block.count(events.OF_CHECKPOINTS)
        if not of_checkpoints:
            yield from block.splitlines()
            continue
        durable = [(int(match[1]), int(match[2]), match.start()) for match in _DURABLE.finditer(block)]
        plain = len(durable) + len(_PASSED_OVER.findall(block)) == of_checkpoints
        for line in block.splitlines():
            if events.OF_CHECKPOINTS not in line or not (plain or _DURABLE.search(line) or _PASSED_OVER.search(line)):
                yield line
        newest: dict[int, tuple[int, int]] = {}
        for attempt, step, place in durable:
            if attempt not in newest or step > newest[attempt][0]:
                newest[attempt] = step, place
        for attempt, (step, place) in newest.items():
            yield _line_of_checkpoint(block, attempt, step, place)


def _line_of_checkpoint(block: bytes, attempt: int, step: int, place: int) -> bytes:
    """The line of the block that tells at `place` of that checkpoint on shared storage; what is needed of it, where the
    line is torn."""
    first, last = max(0, place - _LONGEST), place + _LONGEST
    begin, stop = block.rfind(b"\n", first, place) + 1, block.find(b"\n", place, last)
    line = block[max(begin, first) : stop if stop >= 0 else last]
    if line.startswith(b"{") and line.endswith(b"}"):
        return line
    start = b'"event": "checkpoint", "attempt": %d, "step": %d, "tier": "' % (attempt, step)
    return b"{" + start + shared_kinds()[0].encode() + b'"}'


def of_events(journal: Iterable[Event]) -> list[Attempt]:
    """All attempts that the events tell of."""
    attempts: dict[int, Attempt] = {}
    since_retry: list[Attempt] = []
    queued: float | None = None
    latest: Attempt | None = None
    for event in journal:
        word, when = str(event["event"]), _time(event)
        if word in ("submitting", "submitted"):
            queued = when
        elif word == "attempt" and (claimed := as_int(event.get("attempt"))) is not None:
            latest = attempts[claimed] = begun(event, claimed, queued)
            since_retry.append(latest)
            queued = None  # where it dies without a word, nobody noted since when the next one waits
        elif word == "retry":
            for attempt in since_retry:
                attempt.since_retry = False
            since_retry.clear()
        elif word in ("cancel", "cancel-failed") and latest is not None:
            latest.cancelled = word == "cancel"
        else:
            about = attempts.get(as_int(event.get("attempt")) if "attempt" in event else -1)  # type: ignore[arg-type]
            if word == "end" and about is None and (claimed := as_int(event.get("attempt"))) is not None:
                about = attempts[claimed] = Attempt(claimed)  # its `attempt` line was lost; the verdict stands
                since_retry.append(about)
            if about is not None:
                take(about, event)
        if word in ("requeue", "end") and "by" not in event:
            queued = when
    return [attempts[claimed] for claimed in sorted(attempts)]


def begun(event: Event, claimed: int, queued: float | None = None) -> Attempt:
    """The attempt that an `attempt` event tells of; `claimed` is its number."""
    job, nodes = text(event.get("job")), names(event.get("nodes"))
    return Attempt(claimed, job, nodes, queued, _time(event), as_int(event.get("log_from")))


def take(attempt: Attempt, event: Event) -> None:
    """Adds what an event tells of the attempt that it is about."""
    _TAKE.get(str(event["event"]), _skip)(attempt, event)


def _skip(attempt: Attempt, event: Event) -> None:
    """Says nothing of how it went."""


def _signal(attempt: Attempt, event: Event) -> None:
    attempt.signals.append(str(event.get("signal")))


def _restored(attempt: Attempt, event: Event) -> None:
    attempt.restored = event


def _checkpoint(attempt: Attempt, event: Event) -> None:
    """What lies on a node's own disk alone is lost with the node: counted, it would hide what later attempts add."""
    step = as_int(event.get("step"))
    if step is None or event.get("tier") in _NODE_LOCAL or (attempt.durable is not None and step <= attempt.durable):
        return
    when, took = _time(event), number(event.get("seconds"))
    attempt.durable, attempt.durable_since = step, None if when is None or took is None else when - took


def _hang(attempt: Attempt, event: Event) -> None:
    attempt.hang = event


def _requeue(attempt: Attempt, event: Event) -> None:
    attempt.requeue = event


def _refused(attempt: Attempt, event: Event) -> None:
    attempt.refused = event


def _end(attempt: Attempt, event: Event) -> None:
    """The first word counts, but for one that says more: a late verdict never overrules an attempt's own."""
    if attempt.end is None or "by" not in event:
        attempt.end = event
    durable = as_int(event.get("durable"))  # a command's own word in its requeue file
    if durable is not None and (attempt.durable is None or durable > attempt.durable):
        attempt.durable, attempt.durable_since = durable, None


_TAKE = {
    "signal": _signal,
    "restored": _restored,
    "checkpoint": _checkpoint,
    "hang": _hang,
    "requeue": _requeue,
    "requeue-refused": _refused,
    "end": _end,
}


def _time(event: Event) -> float | None:
    return number(event.get("time"))
