"""One word for how a run is, from its journal, its heartbeats and what Slurm says of its job.

unsubmitted   the launch broke off before Slurm or the local runner had it
pending       waits for its first start
running
stopping      was told to save and stop (the time limit is near), or cancelled and not gone yet
requeued      waits for its next attempt
finished      ended well
failed        ended with an error of the user's code or of the machines; the detail says which
killed        ended by a kill: memory, time limit, somebody's signal
cancelled     ended by `slurmopt cancel`, or by scancel
lost          nobody knows the job any more, and it left no verdict
unknown       its journal cannot be read, or who knows it cannot be asked and it has been silent for long
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurmopt.folder.outcome import FINISHED, KILLED, REQUEUE
from slurmopt.folder.process import alive
from slurmopt.runs.journal import Journal, number, text, whole
from slurmopt.slurm.states import OVER, plain_reason, plain_state
from slurmopt.units import human_seconds

if TYPE_CHECKING:
    from slurmopt.slurm.queue import QueueEntry

ALIVE = ("pending", "running", "stopping", "requeued")
"""States from which a run goes on by itself."""

FRESH_HEARTBEAT = 60.0
"""Seconds after which a heartbeat no longer shows that a rank lives."""

_SKEW = 5.0
"""Seconds by which the clocks of nodes may differ, or Slurm's knowledge lag behind the job's own journal."""


_WAITING = ("pending", "configuring", "requeued", "held")


@dataclass
class Slurm:
    """What one squeue said: jobs by id; or why it could not be asked."""

    jobs: Mapping[str, QueueEntry] = field(default_factory=dict)
    asked: float = 0.0
    """When it was asked: seconds since the epoch."""
    problem: str | None = None


def state(journal: Journal, slurm: Slurm, heartbeat: float | None, now: float) -> tuple[str, str | None]:
    """The run's state and a detail for people. `heartbeat`: when the latest attempt was last heard of."""
    if journal.problem:
        return "unknown", journal.problem
    if journal.ended is not None:
        return _returning(journal, slurm) or _ended(journal, journal.ended)
    if journal.job is None:
        return "unsubmitted", f"the launch broke off; repeat it with launch.id={journal.folder.id}"
    fresh = heartbeat is not None and now - heartbeat < FRESH_HEARTBEAT
    if journal.local:
        return _local(journal, fresh)
    if slurm.problem is not None:
        return _unasked(journal, fresh, slurm.problem)
    if slurm.asked - _SKEW < journal.latest <= now + _SKEW:  # the journal knows better than the shared answer
        return _newer(journal, slurm.jobs.get(journal.job))
    entry = slurm.jobs.get(journal.job)
    return _unqueued(journal, fresh) if entry is None else _queued(journal, entry, fresh)


def _returning(journal: Journal, slurm: Slurm) -> tuple[str, str | None] | None:
    """What Slurm does with a job that was ended by SIGTERM, if it is not simply over."""
    if not journal.may_return or slurm.problem is not None:
        return None
    entry = slurm.jobs.get(journal.job or "")
    if entry is not None and plain_state(entry.state) in OVER:
        return ("cancelled", None) if plain_state(entry.state) == "cancelled" else None
    if entry is not None and entry.restarts >= journal.starts:  # a restart that the journal does not know yet
        return "requeued", plain_reason(entry.reason)
    if slurm.asked - _SKEW < journal.latest:
        return "stopping", "ended by SIGTERM; Slurm will say within seconds whether it starts again"
    return None


def _ended(journal: Journal, end: dict[str, Any]) -> tuple[str, str | None]:
    outcome, error = text(end.get("outcome")) or "no outcome", text(end.get("error"))
    if outcome == FINISHED:
        return "finished", None
    if journal.cancelled:
        return "cancelled", None
    if outcome == KILLED:
        return "killed", error
    rank = whole(end.get("rank"))
    where = f"{outcome}, rank {rank}" if rank is not None else outcome
    return "failed", f"{where}: {error}" if error else where


def _local(journal: Journal, fresh: bool) -> tuple[str, str | None]:
    runner = journal.runner
    if runner is None:  # the launch broke off before it could note the process
        return (living(journal), None) if fresh else ("unknown", "the journal does not name its process")
    lives = alive(runner, journal.folder.path)
    if lives or (lives is None and fresh):
        return living(journal), None
    if lives is None:
        return "unknown", f"it ran on {text(runner.get('host')) or 'another machine'}; ask there"
    if journal.cancelled:
        return "cancelled", None
    return "lost", f"its process {text(runner.get('pid'))} is gone and left no verdict"


def living(journal: Journal) -> str:
    """The state of a run whose job is known to live, from the journal alone."""
    attempt = journal.attempt
    if journal.cancelled:
        return "stopping"
    if attempt is None:
        return "pending"
    if attempt.requeued or (attempt.end or {}).get("outcome") == REQUEUE:
        return "requeued"
    return "stopping" if attempt.signalled else "running"


def _unasked(journal: Journal, fresh: bool, problem: str) -> tuple[str, str | None]:
    if fresh:
        return living(journal), None
    if living(journal) in ("pending", "requeued"):
        return living(journal), "as the journal says; Slurm was not asked"
    return "unknown", "no fresh heartbeat, and Slurm was not asked"


def _newer(journal: Journal, entry: QueueEntry | None) -> tuple[str, str | None]:
    """The journal is newer than squeue's answer; but a job that has not started, or was ended, writes none itself."""
    known = living(journal)
    if entry is not None and (known == "pending" or (journal.cancelled and plain_state(entry.state) in OVER)):
        return _queued(journal, entry, fresh=False)
    return known, "submitted a moment ago" if known == "pending" else None


def _unqueued(journal: Journal, fresh: bool) -> tuple[str, str | None]:
    """squeue does not know the job."""
    if journal.cancelled:
        return "cancelled", None
    if fresh:
        return living(journal), None
    return "lost", f"Slurm no longer knows job {journal.job}, and it left no verdict"


def _queued(journal: Journal, entry: QueueEntry, fresh: bool) -> tuple[str, str | None]:
    word = plain_state(entry.state)
    if word == "cancelled" or (journal.cancelled and word in OVER):
        return "cancelled", None
    if word in _WAITING:
        waiting = "requeued" if journal.attempt else "pending"
        return "stopping" if journal.cancelled else waiting, plain_reason(entry.reason)
    if word in OVER and not fresh:
        why = plain_reason(entry.reason)
        said = f"Slurm says {word}{f', {why}' if why else ''}; it left no verdict"
        return ("lost" if word == "finished" else "killed"), said
    known = living(journal)
    if word == "completing" and known == "running":
        return "stopping", None
    return "running" if known == "pending" else known, word if word == "suspended" else None


def age(then: Any, now: float) -> str:
    """How long ago `then` was, for people."""
    since = number(then)
    return "-" if since is None else f"{human_seconds(now - since)} ago"
