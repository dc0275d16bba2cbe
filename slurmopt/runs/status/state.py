"""Derives the state of a run from its journal, its heartbeats and what Slurm says of its job. The states:

unsubmitted   the launch broke off before it handed the run to Slurm or the local runner
pending       waits for its first attempt
running
stopping      was told to save and stop (the time limit is near), or was cancelled and has not stopped yet
requeued      waits for its next attempt
finished      ended successfully
failed        ended with an error of the user's code or of the machines; the detail says which
killed        ended by a kill: out of memory, time limit, a signal from outside
cancelled     ended by `slurmopt cancel`, or by scancel
lost          Slurm no longer knows the job, and it left no verdict
unknown       the journal cannot be read; or Slurm cannot be asked, and there is no fresh heartbeat
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slurmopt.restart import causes
from slurmopt.run_folder.json_values import as_int, number, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import FINISHED, KILLED, REQUEUE
from slurmopt.run_folder.process import alive, machine
from slurmopt.runs.journal import Journal, returns
from slurmopt.runs.ownership import owner_of
from slurmopt.slurm.states import OVER, WAITING, plain_reason, plain_state
from slurmopt.units import human_seconds

if TYPE_CHECKING:
    from slurmopt.slurm.queue_entry import QueueEntry

ALIVE = ("pending", "running", "stopping", "requeued")
"""States of runs that are not over."""
FAILED = ("failed", "killed", "lost")
"""States of a run that ended other than well, and that nobody cancelled."""
ENDED = ("finished", *FAILED, "cancelled")

_SKEW = 5.0
"""Seconds by which the clocks of nodes may differ, or squeue's answer may lag behind the job's own journal."""


_FOR_TEND = "it waits for a fresh submission: `slurmopt tend` makes it"


@dataclass
class Slurm:
    """squeue's answer, jobs by id; or why it could not be asked."""

    jobs: Mapping[str, QueueEntry] = field(default_factory=dict)
    asked: float = 0.0
    """When it was asked: seconds since the epoch."""
    problem: str | None = None
    here: bool = False
    """Whether this is no answer of squeue: a sweep on this machine, of whose processes it tells exactly."""

    @property
    def lag(self) -> float:
        """Seconds by which it may be older than it says."""
        return 0.0 if self.here else _SKEW

    def unlisted(self, job: str | None) -> str:
        """What it means that the job is not listed."""
        return "its process on this machine is gone" if self.here else f"Slurm no longer knows job {job}"


def run_state(journal: Journal, slurm: Slurm, fresh: bool, now: float) -> tuple[str, str | None]:
    """The run's state and a detail for people. `fresh`: whether a heartbeat shows that the latest attempt lives."""
    if journal.problem:
        return "unknown", journal.problem
    if journal.ended is not None:
        return _returning(journal, slurm) or _ended(journal, journal.ended)
    name, detail = _going_on(journal, slurm, fresh, now)
    if name == "requeued" and journal.attempt is not None and journal.attempt.end is not None:
        detail = "; ".join(filter(None, (reason(journal.attempt.end), detail))) or None
    return name, detail


def _going_on(journal: Journal, slurm: Slurm, fresh: bool, now: float) -> tuple[str, str | None]:
    """The state of a run that has not ended by its journal."""
    if journal.for_tend:
        return ("cancelled", None) if journal.cancelled else ("requeued", _FOR_TEND)
    if journal.job is None:
        return "unsubmitted", _unsubmitted(journal.folder)
    if journal.local and not slurm.here:
        return _local(journal, fresh)
    if slurm.problem is not None:
        return _unasked(journal, fresh, slurm.problem)
    fresh = fresh and not slurm.here
    if slurm.asked - slurm.lag < journal.latest <= now + _SKEW:  # the journal is newer than the cached answer
        return _newer(journal, slurm.jobs.get(journal.job), slurm.asked)
    entry = slurm.jobs.get(journal.job)
    return _unqueued(journal, slurm, fresh) if entry is None else _queued(journal, entry, fresh)


def _unsubmitted(run: RunFolder) -> str:
    """Why the run was never submitted. The folder may not be a launch's: another user may have written it, or it may be
    a copy."""
    if (owner := owner_of(run)) is not None:
        return f"its journal names no job; it belongs to another user ({owner})"
    if not run.in_sweep and (missing := run.lacks()):
        return f"it is not a run that a launch made: it has no {', no '.join(missing)}"
    return f"the launch broke off; repeat it with launch.id={run.id}"


def _returning(journal: Journal, slurm: Slurm) -> tuple[str, str | None] | None:
    """The state of a run that was ended by SIGTERM, if Slurm requeues or has cancelled its job; else None."""
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
    return state_at_end(end, journal.cancelled)


def state_at_end(end: dict[str, Any], cancelled: bool) -> tuple[str, str | None]:
    """The state of a run that ended with the event `end`, and why. `cancelled`: its owner had cancelled it."""
    if end.get("outcome") == FINISHED:
        said = text(end.get("reason"))
        return "finished", None if said == FINISHED else said
    outcome, error, cause = (text(end.get(key)) for key in ("outcome", "error", "cause"))
    if cancelled or cause == causes.CANCELLED:
        return "cancelled", None
    if outcome == REQUEUE:  # it had saved in order to restart, and is not restarted
        return "killed" if cause in causes.NOBODYS_ERROR else "failed", reason(end)
    if outcome == KILLED:
        return "killed", ": ".join(filter(None, (cause if cause != causes.KILLED else None, error))) or None
    rank, subject = as_int(end.get("rank")), cause or outcome or "no outcome"
    where = f"{subject}, rank {rank}" if rank is not None else subject
    return "failed", f"{where}: {error}" if error else where


def reason(end: dict[str, Any]) -> str | None:
    """The cause of this `end` event, and why the run restarts after it or does not."""
    cause, why = text(end.get("cause")), text(end.get("reason"))
    return why if cause is None or (why and cause in why) else ": ".join(filter(None, (cause, why)))


def _local(journal: Journal, fresh: bool) -> tuple[str, str | None]:
    runner = journal.runner
    if runner is None:  # the launch broke off before it could note the process
        return (living(journal), None) if fresh else ("unknown", "the journal does not name its process")
    lives = alive(runner, journal.folder.path)
    if lives or (lives is None and fresh):
        return living(journal), None
    if lives is None and not _is_of_this_boot(runner):
        return "unknown", f"it ran on {text(runner.get('host')) or 'another machine'}; ask there"
    if journal.cancelled:
        return "cancelled", None
    return "lost", f"its process {text(runner.get('pid'))} is gone{_left(journal, ' and ')}"


def _is_of_this_boot(runner: Mapping[str, Any]) -> bool:
    """Whether the runner ran on this machine since its last boot, perhaps in an earlier container of the same name."""
    boot = (text(runner.get("machine")) or "").partition(" ")[0]
    return runner.get("host") == socket.gethostname() and boot == machine().partition(" ")[0]


def _left(journal: Journal, joint: str) -> str:
    """What the journal of a run whose job is gone said last."""
    return f"{joint}was to start the next attempt" if _is_due(journal) else f"{joint}left no verdict"


def _is_due(journal: Journal) -> bool:
    """Whether the latest attempt has ended and a next one is to start."""
    attempt = journal.attempt
    return attempt is not None and (attempt.requeue is not None or (attempt.end is not None and returns(attempt.end)))


def living(journal: Journal) -> str:
    """The state by the journal alone of a run whose job is alive."""
    attempt = journal.attempt
    if journal.cancelled:
        return "stopping"
    if attempt is None:
        return "pending"
    if _is_due(journal):
        return "requeued"
    return "stopping" if attempt.signals else "running"


def _unasked(journal: Journal, fresh: bool, problem: str) -> tuple[str, str | None]:
    if fresh:
        return living(journal), None
    if living(journal) in ("pending", "requeued"):
        return living(journal), "as the journal says; Slurm was not asked"
    return "unknown", "no fresh heartbeat, and Slurm was not asked"


def _newer(journal: Journal, entry: QueueEntry | None, asked_at: float) -> tuple[str, str | None]:
    """The state where the journal is newer than squeue's answer. squeue still counts for a job that has not started or
    was ended, because such a job writes no events."""
    living_state = living(journal)
    if entry is None and journal.cancelled and (journal.submitted or journal.tried) < asked_at - _SKEW:
        return "cancelled", None  # Slurm has forgotten it; the newer event is not the job's
    if entry is not None and (living_state == "pending" or (journal.cancelled and plain_state(entry.state) in OVER)):
        return _queued(journal, entry, fresh=False)
    return living_state, "submitted a moment ago" if living_state == "pending" else None


def _unqueued(journal: Journal, slurm: Slurm, fresh: bool) -> tuple[str, str | None]:
    """The state where squeue does not list the job."""
    if journal.cancelled:
        return "cancelled", None
    if fresh:
        return living(journal), None
    return "lost", f"{slurm.unlisted(journal.job)}{_left(journal, ', and it ')}"


def _queued(journal: Journal, entry: QueueEntry, fresh: bool) -> tuple[str, str | None]:
    job_state = plain_state(entry.state)
    if job_state == "cancelled" or (journal.cancelled and job_state in OVER):
        return "cancelled", None
    if job_state in WAITING:
        waiting = "requeued" if journal.attempt else "pending"
        return "stopping" if journal.cancelled else waiting, plain_reason(entry.reason)
    if job_state in OVER and not fresh:
        why = plain_reason(entry.reason)
        detail = f"Slurm says {job_state}{f', {why}' if why else ''}{_left(journal, '; it ')}"
        return ("lost" if job_state == "finished" else "killed"), detail
    living_state = living(journal)
    if job_state == "completing" and living_state == "running":
        return "stopping", None
    return "running" if living_state == "pending" else living_state, job_state if job_state == "suspended" else None


def age(then: Any, now: float) -> str:
    """How long ago `then` was, for people."""
    since = number(then)
    return "-" if since is None else f"{human_seconds(now - since)} ago"
