"""A run's journal as facts. People edit journals and disks tear them: nothing here trusts a field's type."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from slurmopt.restart import decision
from slurmopt.run_folder import attempts, events
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.attempts import Attempt
from slurmopt.run_folder.json_values import as_int, number, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import FINISHED, REQUEUE
from slurmopt.run_folder.sweep_layout import SweepFolder, sweep_of

FOREIGN = "foreign"
"""The backend of a job that slurmopt did not launch, but measures."""
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
_RETURNS = (decision.REQUEUE, decision.BY_SLURM, decision.SUBMIT)
"""What `next` of an `end` says where that is not the run's end."""


@dataclass
class Journal:
    """What the events tell of a run; only the latest submission and its latest attempt count."""

    folder: RunFolder
    created: float | None = None
    name: str | None = None
    """As it was typed; the folder's is made from it."""
    backend: str | None = None
    submitted: float | None = None
    job: str | None = None
    jobs: list[str] = field(default_factory=list)
    """All jobs of the run, oldest first."""
    runner: dict[str, Any] | None = None
    """The `submitted` event that names the local backend's process."""
    attempt: Attempt | None = None
    attempts: int = 0
    starts: int = 0
    """Attempts of the latest job."""
    cancelled: bool = False
    latest: float = 0.0
    """The newest event's time."""
    problem: str | None = None
    """Why the journal cannot be read."""
    token: str | None = None
    """What Slurm's comment on the run's job has in it."""
    tried: float = 0.0
    """When its latest submission was tried."""
    _submitting: bool = False
    _known: set[str] = field(default_factory=set)
    """The same as `jobs`."""

    @property
    def local(self) -> bool:
        """Whether its job is a process of the local backend."""
        return self.runner is not None or self.backend == "local" or (self.job or "").startswith("local-")

    @property
    def unsettled(self) -> bool:
        """Whether nobody has noted what became of the latest submission, to Slurm."""
        return self._submitting and self.token is not None and not self.local

    @property
    def ended(self) -> dict[str, Any] | None:
        """The `end` event that no other attempt followed or will follow."""
        end = self.attempt.end if self.attempt else None
        return end if end is not None and not returns(end) else None

    @property
    def for_tend(self) -> bool:
        """Whether only a fresh submission brings it back: the job's own, or that of `slurmopt tend`."""
        if self.local or self.attempt is None or self.attempt.end is None or self.ended is not None:
            return False
        return self.attempt.refused is not None or text(self.attempt.end.get("next")) == decision.SUBMIT

    @property
    def may_return(self) -> bool:
        """Whether Slurm may start it again although it ended: preemption and `scontrol requeue` end it by SIGTERM.

        A verdict that says what is `next` has thought of that already."""
        ended = self.ended
        if self.attempt is None or ended is None or "next" in ended or self.local or self.cancelled:
            return False
        return self.attempt.terminated and ended.get("outcome") != FINISHED


def read(folder: RunFolder) -> Journal:
    """Reads the run's events; one that cannot be read gives a journal with a `problem`."""
    journal = Journal(folder)
    try:
        take(journal, events.without_checkpoints(folder.events))
        if not journal.latest and (path := held(folder.events)).is_symlink() and not path.exists():
            raise FileNotFoundError(errno.ENOENT, "it is a broken link", str(path))
        return journal
    except OSError as error:
        return Journal(folder, problem=f"cannot read events.jsonl: {error.strerror or error}")


def take(journal: Journal, lines: Iterable[bytes]) -> Journal:
    """The journal with what further lines of its file tell."""
    for event in events.parse(lines):
        journal.latest = max(journal.latest, number(event.get("time")) or 0.0)
        _TAKE.get(str(event["event"]), _skip)(journal, event)
    return journal


def _skip(journal: Journal, event: dict[str, Any]) -> None:
    """A word of a later version, or of somebody's own."""


def _created(journal: Journal, event: dict[str, Any]) -> None:
    journal.created = number(event.get("time"))
    journal.name = text(event.get("name"))
    journal.backend = text(event.get("backend"))


def _submitting(journal: Journal, event: dict[str, Any]) -> None:
    journal.token = text(event.get("token"))
    journal._submitting, journal.tried = True, number(event.get("time")) or 0.0
    journal.backend = text(event.get("backend")) or journal.backend


def _submit_failed(journal: Journal, event: dict[str, Any]) -> None:
    journal._submitting = False


def learn(journal: Journal, job: str) -> None:
    """What became of the latest submission, where its journal does not tell."""
    _new_job(journal, {"job": job})


def _submitted(journal: Journal, event: dict[str, Any]) -> None:
    _new_job(journal, event)
    journal.submitted = number(event.get("time"))
    journal.backend = text(event.get("backend")) or journal.backend
    journal.runner = event if "pid" in event else None


def _new_job(journal: Journal, event: dict[str, Any]) -> None:
    """A new submission makes the end of the one before history. A quick job's `attempt` can precede its `submitted`."""
    job = _job_id(event.get("job"))
    if job is None:
        return
    if journal._submitting or job != journal.job:
        journal.attempt, journal.starts, journal.cancelled, journal.runner = None, 0, False, None
    journal._submitting = False
    journal.job = job
    if job not in journal._known:
        journal._known.add(job)
        journal.jobs.append(job)


def _attempt(journal: Journal, event: dict[str, Any]) -> None:
    _new_job(journal, event)
    claimed = as_int(event.get("attempt"))
    journal.attempt = attempts.begun(event, journal.attempts if claimed is None else claimed)
    journal.attempts += 1
    journal.starts += 1


def _of_latest(journal: Journal, event: dict[str, Any]) -> Attempt | None:
    """The latest attempt, if the event is about it."""
    attempt, about = journal.attempt, as_int(event.get("attempt"))
    return attempt if attempt is None or about is None or about == attempt.number else None


def _about_attempt(journal: Journal, event: dict[str, Any]) -> None:
    if attempt := _of_latest(journal, event):
        attempts.take(attempt, event)


def _end(journal: Journal, event: dict[str, Any]) -> None:
    if journal.attempt is None:  # the `attempt` line was lost; the verdict stands
        journal.attempt = Attempt(as_int(event.get("attempt")) or 0)
    _about_attempt(journal, event)


def _cancel(journal: Journal, event: dict[str, Any]) -> None:
    journal.cancelled = True


def _cancel_failed(journal: Journal, event: dict[str, Any]) -> None:
    journal.cancelled = False


_TAKE = {
    "created": _created,
    "submitting": _submitting,
    "submitted": _submitted,
    "submit-failed": _submit_failed,
    "attempt": _attempt,
    "signal": _about_attempt,
    "requeue": _about_attempt,
    "requeue-refused": _about_attempt,
    "end": _end,
    "cancel": _cancel,
    "cancel-failed": _cancel_failed,
}


def returns(end: dict[str, Any]) -> bool:
    """Whether another attempt follows this `end`; one that does not say what is next was a wish, and that was met."""
    if "next" in end:
        return end["next"] is not None and text(end["next"]) in _RETURNS
    return end.get("outcome") == REQUEUE


def _job_id(value: Any) -> str | None:
    """`value` if it can be a job's id: it becomes part of a file's name, and a word of `scancel`."""
    return job if (job := text(value)) is not None and _JOB.fullmatch(job) else None


def point_count(sweep: SweepFolder) -> int:
    """How many points the sweep has, as its launch noted."""
    return next((as_int(event.get("points")) or 0 for event in events.read(sweep.events, "created")), 0)


def launched(run: RunFolder, journal: Journal) -> float | None:
    """When the run was launched; a point with its sweep: its own journal notes when its config was made, in the job."""
    sweep = sweep_of(run)
    if sweep is None:
        return journal.created
    try:
        at = next((number(event.get("time")) for event in events.read(sweep.events, "created")), None)
    except OSError:
        at = None
    return journal.created if at is None else at
