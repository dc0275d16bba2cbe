"""The sbatch backend: submits the job script with `sbatch --parsable`."""

from __future__ import annotations

from slurmopt.backends.protocol import Submission
from slurmopt.slurm.script.job import Job
from slurmopt.slurm.script.render import render
from slurmopt.slurm.submit import submit_once
from slurmopt.units import seconds


class Sbatch:
    """Submits the rendered script, and writes nothing else."""

    slurm = True

    def script(self, job: Job) -> str:
        return render(job)

    def submit(self, job: Job, token: str, retry: bool) -> Submission:
        return Submission(hand_over(job, token, retry))


def hand_over(job: Job, token: str, retry: bool) -> str:
    """Submits the job's script, and returns the job id."""
    settings = job.settings
    timeout = seconds(settings.launch.submit_timeout)
    return submit_once(job.folder.script, settings.resources.comment, token, timeout, retry, job.after)


BACKEND = Sbatch()
