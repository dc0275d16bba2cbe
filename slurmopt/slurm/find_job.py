"""Finds the job of one submission: by its token, or by its script and arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurmopt.slurm import accounting
from slurmopt.slurm.absence import all_jobs
from slurmopt.slurm.queue import queue
from slurmopt.slurm.queue_entry import QueueEntry
from slurmopt.slurm.states import is_over


@dataclass(frozen=True)
class Sought:
    """What identifies the job of one submission."""

    token: str
    """Part of the job's comment, unless the site rewrites comments."""
    command: str | None = None
    """The script and its arguments as squeue shows them; None to identify the job by the token only."""
    known: frozenset[str] = frozenset()
    """Jobs with the same command from earlier submissions."""

    def is_job(self, entry: QueueEntry) -> bool:
        """Whether `entry` is that job. A job that Slurm recorded but refused is not."""
        if self.token in entry.comment:
            return not entry.never_ran
        return entry.command.strip() == self.command and not is_over(entry.state) and _plain(entry) not in self.known


def find_token(token: str) -> str | None:
    """As `find_job`, by the token only."""
    return find_job(Sought(token))


def find_job(sought: Sought) -> str | None:
    """The job id as sbatch would have printed it; of an array that of the array.

    Asks squeue; then scontrol, as a site's wrapper or cache may answer for squeue; and, if accounting runs, sacct for
    jobs that both have forgotten. Raises Slurm's failure.
    """
    job = _found(queue(fresh=True), sought) or _found(all_jobs(), sought)
    if job is not None:
        return job
    from slurmopt.slurm.cluster.facts import facts

    return accounting.job_with_token(sought.token) if facts().accounting else None


def with_token(jobs: Mapping[str, QueueEntry], token: str) -> str | None:
    """As `find_token`, among jobs that squeue has listed already."""
    return _found(jobs, Sought(token))


def _found(jobs: Mapping[str, QueueEntry], sought: Sought) -> str | None:
    return next((_plain(entry) for entry in jobs.values() if sought.is_job(entry)), None)


def _plain(entry: QueueEntry) -> str:
    """The id of the job, or of the array or the heterogeneous job to which it belongs."""
    return entry.job_id.split("_")[0].split("+")[0]
