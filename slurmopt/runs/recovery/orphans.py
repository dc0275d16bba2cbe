"""Runs that should go on and that nobody brings back, and those whose journal does not know the job that Slurm has:
found with one squeue for all, and sacct for what that forgot."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from slurmopt.errors import one_line
from slurmopt.run_folder import events
from slurmopt.run_folder.files import read_end
from slurmopt.run_folder.json_values import text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import journal as journals
from slurmopt.runs.journal import Journal, returns
from slurmopt.runs.ownership import is_mine
from slurmopt.runs.status.progress import is_fresh, of, read
from slurmopt.runs.status.query import is_looked_for, of_the_run
from slurmopt.runs.status.state import Slurm
from slurmopt.slurm.absence import completed
from slurmopt.slurm.accounting import states_in_accounting
from slurmopt.slurm.find_job import with_token
from slurmopt.slurm.queue import queue
from slurmopt.slurm.queue_entry import Queue, QueueEntry
from slurmopt.slurm.states import is_over

GRACE = 10.0
"""Seconds for which a job must have been over, or unknown: Slurm may be about to requeue it."""
GIVEN_UP = 300.0
"""Seconds after which heartbeats of a job that Slurm says is over hold nothing back: its ranks are on a node cut off,
and end themselves when they see the next attempt."""

_TAIL = 16384
_PASSED_OVER = (b'"event": "checkpoint', b'"event": "notif', b'"event": "restored', b'"event": "node-excluded')


@dataclass(frozen=True)
class Orphan:
    """A run that is left alone."""

    journal: Journal
    state: str | None
    """How Slurm says that its job ended, in its long word; None where it does not know the job any more."""
    nodes: str = ""
    cluster: str | None = None
    """Where its job was, if that is another cluster than this one: nobody here can tell how it is."""
    submitted: str | None = None
    """The job that its latest submission became, where its journal does not know that: it is only to be noted."""

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


def strays(runs: Iterable[RunFolder], fresh: bool = False) -> list[Orphan]:
    """Those of `runs` that are left alone. `fresh`: Slurm is asked now, not through the answer that all share.

    Then scontrol is asked too for jobs that squeue does not list. Slurm is asked nothing where no run can be one.
    Raises what kept it from answering.
    """
    read = [journals.read(run) for run in runs if not settled(run) and is_mine(run)]
    open_ones = [journal for journal in read if may_stray(journal)]
    if not open_ones:
        return []
    jobs = queue(fresh)
    asked = time.time() - jobs.age
    found = [stray for journal in open_ones if (stray := _look(journal, jobs, asked)) is not None]
    if fresh and (absent := [str(stray.journal.job) for stray in found if stray.state is None]):
        jobs = completed(jobs, absent)
        found = [stray for one in found if (stray := _look(one.journal, jobs, asked)) is not None]
    return _with_accounting(found)


def settled(run: RunFolder) -> bool:
    """Whether the end of the journal says that the run has ended: enough to know of most runs."""
    try:
        lines = read_end(run.events, _TAIL).splitlines()
    except OSError:
        return False
    word = next(_telling(reversed(lines)), {})
    if word.get("event") == "cancel":
        return True
    # An attempt's end that the next one noted is older than that.
    return word.get("event") == "end" and not returns(word) and word.get("by") != "next attempt"


def _telling(lines: Iterable[bytes]) -> Iterator[dict[str, object]]:
    return events.parse(line for line in lines if not any(word in line for word in _PASSED_OVER))


def may_stray(journal: Journal) -> bool:
    """Whether the run was submitted to Slurm, or may have been, and has not ended, or a retry of it broke off whose job
    Slurm may have. The local backend's process looks after its own."""
    return not journal.local and (is_looked_for(journal) or goes_on(journal))


def goes_on(journal: Journal) -> bool:
    """Whether the run has a job and is not over as far as its journal tells."""
    return journal.job is not None and not journal.cancelled and journal.ended is None


def _look(journal: Journal, jobs: Queue, asked: float) -> Orphan | None:
    """The run as a stray, unless its job, or another of the run's, may still do something by itself."""
    if journal.unsettled and (job := with_token(jobs, journal.token or "")) is not None:
        entry = jobs.get(job)
        return Orphan(journal, entry.state if entry else None, submitted=job)
    if journal.job is None or not goes_on(journal):  # a launch or a retry that broke off: it is its owner's to repeat
        return None
    script = str(journal.folder.script)
    if not journal.folder.in_sweep and any(entry.runs(script) and not is_over(entry.state) for entry in jobs.values()):
        return None
    entry = of_the_run(journal, Slurm(jobs, asked)).jobs.get(journal.job)
    if entry is not None and not is_over(entry.state):
        return None
    since = _since(journal, entry)
    if asked - since < GRACE or (_beats(journal) and (entry is None or asked - since < GIVEN_UP)):
        return None
    return Orphan(journal, entry.state if entry else None, entry.nodes if entry else "")


def _since(journal: Journal, entry: QueueEntry | None) -> float:
    """When it was last known to be alive: by Slurm, else by the journal, whose clock may be another's."""
    if entry is not None and entry.end is not None:
        return entry.end
    return min(journal.latest, time.time())


def _beats(journal: Journal) -> bool:
    """Whether a rank of an attempt without an end is still heard of."""
    if journal.attempt is None or journal.attempt.end is not None:
        return False
    attempt = journal.attempt.number
    beats = (read(journal.folder, attempt, rank) for rank in journal.folder.ranks_with_heartbeats(attempt))
    without_outcome = [of(beat) for beat in beats if beat is not None and not beat.outcome]
    latest = max(without_outcome, key=lambda seen: seen.heartbeat or 0.0, default=None)
    return is_fresh(journal.folder, latest, time.time())


def _with_accounting(found: list[Orphan]) -> list[Orphan]:
    """What accounting knows, where it runs, of jobs that squeue does not know; and which are another cluster's."""
    unknown = {str(stray.journal.job): str(stray.run.script) for stray in found if stray.state is None}
    if not unknown:
        return found
    from slurmopt.slurm.cluster.facts import facts

    here = facts()
    states = states_in_accounting(unknown) if here.accounting else {}
    return [_told(stray, states, here.cluster) for stray in found]


def _told(stray: Orphan, states: dict[str, str], here: str) -> Orphan:
    if stray.state is not None:
        return stray
    noted = cluster_of(stray.run)
    if noted not in (None, here):
        return replace(stray, cluster=noted)
    state = states.get(str(stray.journal.job), "")
    return replace(stray, state=state) if is_over(state) else stray


def cluster_of(run: RunFolder) -> str | None:
    """The cluster that the latest submission went to, where that was noted."""
    found = events.read(run.events, "submitted")
    return text(found[-1].get("cluster")) if found else None
