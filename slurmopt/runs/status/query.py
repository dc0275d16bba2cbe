"""How runs are, all at once: each journal read once, one squeue for all, heartbeats only of runs that are alive."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from slurmopt.errors import SlurmError, one_line
from slurmopt.grid.records import readable
from slurmopt.run_folder.json_values import as_int, number, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import journal as journals
from slurmopt.runs.journal import Journal
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.status import budgets, checkpoints
from slurmopt.runs.status.progress import Progress, is_fresh, of_end, progress
from slurmopt.runs.status.state import ALIVE, Slurm, state
from slurmopt.slurm.states import is_over

if TYPE_CHECKING:
    from slurmopt.slurm.queue_entry import QueueEntry

LOOKED_FOR = 7 * 86400.0
"""Seconds for which whoever looks asks Slurm for a job whose submission nobody settled. A launch that died and is never
repeated would else cost a question at every look; a job that starts later says so in the journal."""


@dataclass
class Status:
    """How one run is at `now`."""

    journal: Journal
    state: str
    detail: str | None
    progress: Progress
    entry: QueueEntry | None
    now: float

    @property
    def folder(self) -> RunFolder:
        return self.journal.folder

    @property
    def label(self) -> str:
        """NAME/ID: what every command takes for RUN."""
        return one_line(f"{self.folder.name}/{self.folder.id}")

    @property
    def owner(self) -> str | None:
        """The other user whom it belongs to; None for one's own."""
        return owner_of(self.folder)

    @property
    def alive(self) -> bool:
        return self.state in ALIVE

    @property
    def nodes(self) -> str | None:
        """As the latest attempt noted them, else as Slurm has them."""
        of_attempt = self.journal.attempt.nodes if self.journal.attempt else None
        return of_attempt or (self.entry.nodes if self.entry else None) or None

    @property
    def start(self) -> float | None:
        """When Slurm expects a waiting run to start."""
        return self.entry.start if self.entry and self.state in ("pending", "requeued") else None

    @property
    def elapsed(self) -> float | None:
        """Seconds that the latest attempt has run, or did run."""
        attempt = self.journal.attempt
        if attempt is None or attempt.started is None or self.state == "requeued":
            return None
        until = number(attempt.end.get("time")) if attempt.end else self.progress.heartbeat
        until = self.now if self.alive else until
        return None if until is None else max(0.0, until - attempt.started)


def gather(folders: list[RunFolder], details: bool = False, fresh: bool = False) -> tuple[list[Status], str | None]:
    """The status of each run, and why Slurm could not be asked, if so.

    `details`: heartbeats of ended runs too. `fresh`: Slurm is asked now, not through the answer that all share.
    """
    read = [_read(folder) for folder in folders]
    slurm = ask(read, fresh)
    going = [one.job for one in read if one.job and _in_slurm(one, fresh) and one.ended is None]
    slurm = sure(slurm, going, fresh)
    needed = any(is_looked_for(one, fresh) or (_in_slurm(one, fresh) and one.ended is None) for one in read)
    return [_judge(journal, slurm, details) for journal in read], slurm.problem if needed else None


def ask(read: list[Journal], fresh: bool = False) -> Slurm:
    """One squeue for all runs that Slurm may know something of; none where there is no such run."""
    return ask_slurm(fresh) if any(_in_slurm(journal, fresh) for journal in read) else Slurm()


def ask_slurm(fresh: bool) -> Slurm:
    """What one squeue says. `fresh`: now, not through the answer that all share."""
    from slurmopt.slurm.queue import queue

    try:
        jobs = queue(fresh)
        return Slurm(jobs, asked=time.time() - jobs.age)
    except SlurmError as error:
        return Slurm(problem=str(error))


def sure(slurm: Slurm, wanted: list[str], fresh: bool) -> Slurm:
    """`slurm`, in which absence means that Slurm has no such job. `fresh`, before something is done about it: scontrol
    has been asked for each of `wanted` that squeue does not list. Else only where squeue lists nothing at all, for the
    newest."""
    from slurmopt.slurm.absence import completed
    from slurmopt.slurm.queue_entry import Queue

    if slurm.problem is not None or not wanted or not isinstance(slurm.jobs, Queue) or (slurm.jobs and not fresh):
        return slurm
    try:
        jobs = completed(slurm.jobs, wanted if fresh else wanted[-1:])
    except SlurmError as error:
        return Slurm(problem=str(error))
    if not fresh and any(not is_over(entry.state) for entry in jobs.values()):
        return Slurm(problem=f"squeue lists no jobs, although Slurm has job {wanted[-1]}")
    return Slurm(jobs, slurm.asked)


def is_looked_for(journal: Journal, fresh: bool = False) -> bool:
    """Whether Slurm is asked for the job of a submission whose answer was lost. `fresh`: something will be done."""
    return journal.unsettled and (fresh or time.time() - journal.tried < LOOKED_FOR)


def _in_slurm(journal: Journal, fresh: bool = False) -> bool:
    if journal.unsettled:
        return is_looked_for(journal, fresh)
    return journal.job is not None and not journal.local and (journal.ended is None or journal.may_return)


def _judge(journal: Journal, slurm: Slurm, details: bool) -> Status:
    status = _status(journal, slurm, details)
    if status.alive or journal.ended is not None:
        return status
    # The end may have been written after its journal was read and before its job or process was looked for.
    return _status(_read(journal.folder), slurm, details)


def _read(folder: RunFolder) -> Journal:
    journal = journals.read(readable(folder))
    if not journal.latest and journal.problem is None:  # an array task may have archived the point between the two
        journal = journals.read(readable(folder))
    return journal


def _status(journal: Journal, slurm: Slurm, details: bool) -> Status:
    now = time.time()
    if journal.unsettled:
        _learn(journal, slurm)
    seen = None
    if journal.attempt is not None and (details or journal.ended is None):
        seen = progress(journal.folder, journal.attempt.number)
    seen = seen or of_end(journal.ended or {}) or Progress()
    slurm = of_the_run(journal, slurm)
    fresh = journal.ended is None and is_fresh(journal.folder, seen, now)
    word, detail = state(journal, slurm, fresh, now)
    entry = slurm.jobs.get(journal.job) if journal.job is not None and _in_slurm(journal) else None
    return Status(journal, word, detail, seen, entry, now)


def _learn(journal: Journal, slurm: Slurm) -> None:
    """Slurm may have the job of a submission whose answer was lost."""
    from slurmopt.slurm.find_job import with_token

    if (job := with_token(slurm.jobs, journal.token or "")) is not None:
        journals.learn(journal, job)


def of_the_run(journal: Journal, slurm: Slurm) -> Slurm:
    """Without a job that only has the number of the run's: a cluster built anew counts from 1, and people edit."""
    entry = slurm.jobs.get(journal.job or "")
    if entry is None or entry.runs(str(journal.folder.script)):
        return slurm
    if journal.token is None and not entry.command:  # neither says whose it is
        return slurm
    return slurm if journal.token and journal.token in entry.comment else replace(slurm, jobs={})


def as_dict(status: Status, details: bool = True) -> dict[str, Any]:
    """What `slurmopt status --json` prints of a run: see `slurmopt.commands.status`. `details`: checkpoints too."""
    journal, seen, attempt = status.journal, status.progress, status.journal.attempt
    end = journal.ended or {}
    latest = (attempt.end if attempt else None) or {}
    return {
        "name": status.folder.name,
        "id": status.folder.id,
        "folder": str(status.folder.told(status.folder.path)),
        "owner": status.owner,
        "backend": journal.backend,
        "state": status.state,
        "detail": status.detail,
        "estimated_start": status.start,
        "job": journal.job,
        "jobs": journal.jobs,
        "attempt": attempt.number if attempt else None,
        "attempts": journal.attempts,
        "nodes": status.nodes,
        "created": journal.created,
        "submitted": journal.submitted,
        "started": attempt.started if attempt else None,
        "ended": number(end.get("time")),
        "elapsed": status.elapsed,
        "step": seen.step,
        "total_steps": seen.total_steps,
        "steps_per_second": seen.steps_per_second,
        "eta_seconds": seen.eta_seconds if status.alive else None,
        "metrics": {key: value if math.isfinite(value) else None for key, value in seen.metrics.items()},
        "heartbeat": seen.heartbeat,
        "outcome": text(end.get("outcome")),
        "exit_code": as_int(end.get("exit_code")),
        "rank": as_int(end.get("rank")),
        "error": text(end.get("error")),
        "cause": text(latest.get("cause")),
        "next": text(latest.get("next")),
        "reason": text(latest.get("reason")),
        "budgets": budgets.as_list(budgets.read(status.folder)) if details else None,
        **checkpoints.as_dict(checkpoints.read(status.folder) if details else None),
    }
