"""Finds orphaned runs: those that should go on and that nothing brings back, and those whose journal lacks a job that
Slurm has. One squeue answers for all runs; sacct is asked for jobs that squeue no longer lists."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from slurmopt.errors import one_line
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import read_end
from slurmopt.run_folder.json_values import text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import journal as journals
from slurmopt.runs.journal import Journal, returns
from slurmopt.runs.ownership import is_mine
from slurmopt.runs.status.progress import from_heartbeat, is_fresh, read
from slurmopt.runs.status.query import may_have_unnoted_job, without_foreign_job
from slurmopt.runs.status.state import Slurm
from slurmopt.slurm.absence import completed
from slurmopt.slurm.accounting import states_in_accounting
from slurmopt.slurm.find_job import with_token
from slurmopt.slurm.queue import queue
from slurmopt.slurm.queue_entry import Queue, QueueEntry
from slurmopt.slurm.states import is_over

GRACE = 10.0
"""Seconds for which a job must have been over, or unknown to Slurm, which may be about to requeue it."""
GIVEN_UP = 300.0
"""Seconds after which heartbeats of a job that Slurm says is over are ignored: its ranks run on a node that is cut off,
and end when they see the next attempt."""

_TAIL = 16384
_IGNORED = (b'"event": "checkpoint', b'"event": "notif', b'"event": "restored', b'"event": "node-excluded')


@dataclass(frozen=True)
class Orphan:
    """A run that should go on and that nothing brings back."""

    journal: Journal
    state: str | None
    """The state in which its job ended, as Slurm spells it out; None where Slurm no longer knows the job."""
    nodes: str = ""
    cluster: str | None = None
    """The cluster of its job, if that is another one than this: its state cannot be looked up from here."""
    submitted: str | None = None
    """The job of its latest submission, where its journal lacks it and only needs to note it."""

    @property
    def run(self) -> RunFolder:
        return self.journal.folder

    @property
    def label(self) -> str:
        """NAME/ID."""
        return one_line(f"{self.run.name}/{self.run.id}")

    @property
    def end(self) -> dict[str, object] | None:
        """The `end` of the latest attempt of the latest job."""
        return self.journal.attempt.end if self.journal.attempt else None


def find_orphans(runs: Iterable[RunFolder], fresh: bool = False) -> list[Orphan]:
    """The orphans among `runs`. `fresh`: asks Slurm now instead of using the shared cached answer, and asks scontrol
    for jobs that squeue does not list.

    Slurm is not asked where no run can be an orphan. Raises the SlurmError that kept it from answering.
    """
    unfinished = [journals.read(run) for run in runs if not has_ended(run) and is_mine(run)]
    candidates = [journal for journal in unfinished if may_be_orphan(journal)]
    if not candidates:
        return []
    jobs = queue(fresh)
    asked_at = time.time() - jobs.age
    orphans = [orphan for journal in candidates if (orphan := _as_orphan(journal, jobs, asked_at)) is not None]
    if fresh and (absent := [str(orphan.journal.job) for orphan in orphans if orphan.state is None]):
        jobs = completed(jobs, absent)
        orphans = [
            orphan for previous in orphans if (orphan := _as_orphan(previous.journal, jobs, asked_at)) is not None
        ]
    return _with_accounting(orphans)


def has_ended(run: RunFolder) -> bool:
    """Whether the last lines of the journal say that the run has ended. They suffice for most runs."""
    try:
        lines = read_end(run.events, _TAIL).splitlines()
    except OSError:
        return False
    event = next(_relevant(reversed(lines)), {})
    if event.get("event") == "cancel":
        return True
    # An `end` that the next attempt wrote is that of an earlier attempt.
    return event.get("event") == "end" and not returns(event) and event.get("by") != "next attempt"


def _relevant(lines: Iterable[bytes]) -> Iterator[dict[str, object]]:
    return events.parse(line for line in lines if not any(pattern in line for pattern in _IGNORED))


def may_be_orphan(journal: Journal) -> bool:
    """Whether the run was submitted to Slurm, or may have been, and has not ended; or a retry of it broke off whose job
    Slurm may have. Runs of the local backend are restarted by its own process."""
    return not journal.local and (may_have_unnoted_job(journal) or is_unfinished(journal))


def is_unfinished(journal: Journal) -> bool:
    """Whether the run has a job and, by its journal, has neither ended nor been cancelled."""
    return journal.job is not None and not journal.cancelled and journal.ended is None


def _as_orphan(journal: Journal, jobs: Queue, asked_at: float) -> Orphan | None:
    """The run as an orphan; None where its job, or another job of the run, may still run or start."""
    if journal.unsettled and (job := with_token(jobs, journal.token or "")) is not None:
        entry = jobs.get(job)
        return Orphan(journal, entry.state if entry else None, submitted=job)
    if journal.job is None or not is_unfinished(journal):  # its owner must repeat the launch or retry that broke off
        return None
    script = str(journal.folder.script)
    if not journal.folder.in_sweep and any(entry.runs(script) and not is_over(entry.state) for entry in jobs.values()):
        return None
    entry = without_foreign_job(journal, Slurm(jobs, asked_at)).jobs.get(journal.job)
    if entry is not None and not is_over(entry.state):
        return None
    last_alive = _last_alive(journal, entry)
    if asked_at - last_alive < GRACE or (
        _has_fresh_heartbeat(journal) and (entry is None or asked_at - last_alive < GIVEN_UP)
    ):
        return None
    return Orphan(journal, entry.state if entry else None, entry.nodes if entry else "")


def _last_alive(journal: Journal, entry: QueueEntry | None) -> float:
    """When the job was last known to be alive: by Slurm, else by the journal, which another clock may have stamped."""
    if entry is not None and entry.end is not None:
        return entry.end
    return min(journal.latest, time.time())


def _has_fresh_heartbeat(journal: Journal) -> bool:
    """Whether a rank of an attempt without an `end` has a fresh heartbeat."""
    if journal.attempt is None or journal.attempt.end is not None:
        return False
    attempt = journal.attempt.number
    beats = (read(journal.folder, attempt, rank) for rank in journal.folder.ranks_with_heartbeats(attempt))
    without_outcome = [from_heartbeat(beat) for beat in beats if beat is not None and not beat.outcome]
    latest = max(without_outcome, key=lambda progress: progress.heartbeat or 0.0, default=None)
    return is_fresh(journal.folder, latest, time.time())


def _with_accounting(orphans: list[Orphan]) -> list[Orphan]:
    """Completes orphans whose jobs squeue does not know: adds their states from accounting, where that runs, and their
    cluster where it is another one."""
    unknown = {str(orphan.journal.job): str(orphan.run.script) for orphan in orphans if orphan.state is None}
    if not unknown:
        return orphans
    from slurmopt.slurm.cluster.facts import facts

    cluster_facts = facts()
    states = states_in_accounting(unknown) if cluster_facts.accounting else {}
    return [_completed(orphan, states, cluster_facts.cluster) for orphan in orphans]


def _completed(orphan: Orphan, states: dict[str, str], this_cluster: str) -> Orphan:
    if orphan.state is not None:
        return orphan
    cluster = cluster_of(orphan.run)
    if cluster not in (None, this_cluster):
        return replace(orphan, cluster=cluster)
    state = states.get(str(orphan.journal.job), "")
    return replace(orphan, state=state) if is_over(state) else orphan


def cluster_of(run: RunFolder) -> str | None:
    """The cluster of the latest submission, where the journal has it."""
    submissions = events.read(run.events, "submitted")
    return text(submissions[-1].get("cluster")) if submissions else None
