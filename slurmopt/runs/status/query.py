"""Queries the status of many runs: reads each journal once, calls squeue once for all, and reads heartbeats only of
runs that are alive."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt.backends.array.queue import queue_of
from slurmopt.errors import SlurmError, one_line
from slurmopt.grid.records import readable
from slurmopt.run_folder.json_values import as_int, number, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs import journal as journals
from slurmopt.runs.journal import Journal
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.status import budgets, checkpoints
from slurmopt.runs.status.progress import Progress, from_end_event, is_fresh, progress
from slurmopt.runs.status.state import ALIVE, Slurm, run_state
from slurmopt.slurm.states import is_over

if TYPE_CHECKING:
    from slurmopt.slurm.queue_entry import QueueEntry

LOOKED_FOR = 7 * 86400.0
"""Seconds for which a status query asks Slurm for the job of a submission whose answer was lost. Otherwise a launch
that died and is never repeated would cost a call at every status; a job that starts later appears in the journal."""


@dataclass
class Status:
    """The status of one run at `now`."""

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
        """The other user whom the run belongs to; None for one's own."""
        return owner_of(self.folder)

    @property
    def alive(self) -> bool:
        return self.state in ALIVE

    @property
    def nodes(self) -> str | None:
        """The nodes of the latest attempt, else those of the job in Slurm."""
        of_attempt = self.journal.attempt.nodes if self.journal.attempt else None
        return of_attempt or (self.entry.nodes if self.entry else None) or None

    @property
    def start(self) -> float | None:
        """When Slurm expects a waiting run to start."""
        return self.entry.start if self.entry and self.state in ("pending", "requeued") else None

    @property
    def elapsed(self) -> float | None:
        """Seconds for which the latest attempt has run or ran."""
        attempt = self.journal.attempt
        if attempt is None or attempt.started is None or self.state == "requeued":
            return None
        until = number(attempt.end.get("time")) if attempt.end else self.progress.heartbeat
        until = self.now if self.alive else until
        return None if until is None else max(0.0, until - attempt.started)


def gather(folders: list[RunFolder], details: bool = False, fresh: bool = False) -> tuple[list[Status], str | None]:
    """The status of each run, and why Slurm could not be asked, if so.

    `details`: reads heartbeats of ended runs too. `fresh`: asks Slurm now instead of using the shared cached answer.
    """
    read_journals = [_read(folder) for folder in folders]
    slurm = ask(read_journals, fresh)
    unfinished = [entry.job for entry in read_journals if entry.job and in_slurm(entry, fresh) and entry.ended is None]
    slurm = with_unlisted_jobs(slurm, unfinished, fresh)
    needed = any(
        may_have_unnoted_job(entry, fresh) or (in_slurm(entry, fresh) and entry.ended is None)
        for entry in read_journals
    )
    here = _of_sweeps_here(read_journals)
    statuses = [_judge(entry, here.get(entry.folder.top, slurm), details) for entry in read_journals]
    return statuses, slurm.problem if needed else None


def _of_sweeps_here(read_journals: list[Journal]) -> dict[Path, Slurm]:
    """What the runners of sweeps on this machine tell, for the points that are parts of such sweeps."""
    unfinished = [entry.folder for entry in read_journals if entry.local and entry.ended is None]
    sweeps = {folder.top: SweepFolder(folder.top) for folder in unfinished if folder.in_sweep}
    return {top: ask_runner(sweep) for top, sweep in sweeps.items()}


def ask_runner(sweep: SweepFolder) -> Slurm:
    """What squeue would list of a sweep on this machine."""
    asked = time.time()
    jobs, problem = queue_of(sweep)
    return Slurm(jobs, asked, problem, here=True)


def judged(folders: list[RunFolder], slurm: Slurm, details: bool = False) -> list[Status]:
    """The status of each run by an answer of squeue that the caller has. `details` as in `gather`."""
    return [_judge(_read(folder), slurm, details) for folder in folders]


def ask(read_journals: list[Journal], fresh: bool = False) -> Slurm:
    """squeue's answer for all runs; Slurm is not asked where no run can have a job there."""
    return ask_slurm(fresh) if any(in_slurm(journal, fresh) for journal in read_journals) else Slurm()


def ask_slurm(fresh: bool) -> Slurm:
    """squeue's answer, or the reason why there is none. `fresh`: asks now instead of using the shared cached answer."""
    from slurmopt.slurm.queue import queue

    try:
        jobs = queue(fresh)
        return Slurm(jobs, asked=time.time() - jobs.age)
    except SlurmError as error:
        return Slurm(problem=str(error))


def with_unlisted_jobs(slurm: Slurm, job_ids: list[str], fresh: bool) -> Slurm:
    """`slurm` with the jobs that squeue has left out, so that a missing job is one that Slurm does not have.

    `fresh`, for a caller that acts on the answer: asks scontrol for each of `job_ids` that squeue does not list. Else
    asks only where squeue lists nothing at all, and for the newest of them.
    """
    from slurmopt.slurm.absence import completed
    from slurmopt.slurm.queue_entry import Queue

    if slurm.problem is not None or not job_ids or not isinstance(slurm.jobs, Queue) or (slurm.jobs and not fresh):
        return slurm
    try:
        jobs = completed(slurm.jobs, job_ids if fresh else job_ids[-1:])
    except SlurmError as error:
        return Slurm(problem=str(error))
    if not fresh and any(not is_over(entry.state) for entry in jobs.values()):
        return Slurm(problem=f"squeue lists no jobs, although Slurm has job {job_ids[-1]}")
    return Slurm(jobs, slurm.asked)


def may_have_unnoted_job(journal: Journal, fresh: bool = False) -> bool:
    """Whether Slurm must be asked for the job of a submission whose answer was lost. `fresh`: the caller will act on
    it, so old submissions count too."""
    return journal.unsettled and (fresh or time.time() - journal.tried < LOOKED_FOR)


def in_slurm(journal: Journal, fresh: bool = False) -> bool:
    """Whether Slurm may have a job of the run. `fresh` as in `may_have_unnoted_job`."""
    if journal.unsettled:
        return may_have_unnoted_job(journal, fresh)
    return journal.job is not None and not journal.local and (journal.ended is None or journal.may_return)


def _judge(journal: Journal, slurm: Slurm, details: bool) -> Status:
    status = _status(journal, slurm, details)
    if status.alive or journal.ended is not None:
        return status
    # The end may have been written after its journal was read and before its job or process was looked for.
    return _status(_read(journal.folder), slurm, details)


def _read(folder: RunFolder) -> Journal:
    journal = journals.read(readable(folder))
    if not journal.latest and journal.problem is None:  # an array task may have archived the point after `readable`
        journal = journals.read(readable(folder))
    return journal


def _status(journal: Journal, slurm: Slurm, details: bool) -> Status:
    now = time.time()
    if journal.unsettled:
        _learn(journal, slurm)
    latest = None
    if journal.attempt is not None and (details or journal.ended is None):
        latest = progress(journal.folder, journal.attempt.number)
    latest = latest or from_end_event(journal.ended or {}) or Progress()
    slurm = without_foreign_job(journal, slurm)
    fresh = journal.ended is None and is_fresh(journal.folder, latest, now)
    state, detail = run_state(journal, slurm, fresh, now)
    entry = slurm.jobs.get(journal.job) if journal.job is not None and in_slurm(journal) else None
    return Status(journal, state, detail, latest, entry, now)


def _learn(journal: Journal, slurm: Slurm) -> None:
    """Adds to the journal the job of a submission whose answer was lost, where Slurm has it."""
    from slurmopt.slurm.find_job import with_token

    if (job := with_token(slurm.jobs, journal.token or "")) is not None:
        journals.learn(journal, job)


def without_foreign_job(journal: Journal, slurm: Slurm) -> Slurm:
    """`slurm` without a job that has the run's job id but belongs to something else: a rebuilt cluster counts from 1,
    and journals are edited."""
    entry = slurm.jobs.get(journal.job or "")
    if journal.backend == journals.FOREIGN:  # the script is somebody's own
        return slurm
    if entry is None or entry.runs(str(journal.folder.script)):
        return slurm
    if journal.token is None and not entry.command:  # nothing tells whose job it is
        return slurm
    return slurm if journal.token and journal.token in entry.comment else replace(slurm, jobs={})


def as_dict(status: Status, details: bool = True) -> dict[str, Any]:
    """What `slurmopt status --json` prints of a run (see `slurmopt.commands.status`). `details`: with checkpoints and
    budgets."""
    journal, progress, attempt = status.journal, status.progress, status.journal.attempt
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
        "step": progress.step,
        "total_steps": progress.total_steps,
        "steps_per_second": progress.steps_per_second,
        "eta_seconds": progress.eta_seconds if status.alive else None,
        "metrics": {key: value if math.isfinite(value) else None for key, value in progress.metrics.items()},
        "loader": None if progress.loader is None else asdict(progress.loader),
        "heartbeat": progress.heartbeat,
        "outcome": text(end.get("outcome")),
        "exit_code": as_int(end.get("exit_code")),
        "rank": as_int(end.get("rank")),
        "error": text(end.get("error")),
        "cause": text(latest.get("cause")),
        "next": text(latest.get("next")),
        "reason": text(latest.get("reason")),
        "budgets": budgets.as_list(budgets.read(status.folder)) if details else None,
        "profiles": [str(status.folder.told(path)) for path in status.folder.all_profiles()] if details else None,
        **checkpoints.as_dict(checkpoints.read(status.folder) if details else None),
    }
