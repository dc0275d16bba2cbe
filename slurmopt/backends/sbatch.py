"""The sbatch backend: submits the job script with `sbatch --parsable`."""

from __future__ import annotations

from slurmopt.backends.protocol import Submission
from slurmopt.slurm.script.job import Job
from slurmopt.slurm.script.render import render
from slurmopt.slurm.submit import sbatch_once
from slurmopt.units import seconds


class Sbatch:
    """Submits the rendered script, and writes nothing else."""

    slurm = True

    def script(self, job: Job) -> str:
        return render(job)

    def submit(self, job: Job, token: str, retry: bool) -> Submission:
        script, comment = job.folder.script, job.settings.resources.comment
        timeout = seconds(job.settings.launch.submit_timeout)
        return Submission(sbatch_once(script, comment, token, timeout, retry, job.after))


BACKEND = Sbatch()
