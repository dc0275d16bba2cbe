"""slurmopt's own script through `sbatch --parsable`."""

from __future__ import annotations

from slurmopt.backends.protocol import Submission
from slurmopt.slurm.script import Job, render
from slurmopt.slurm.submit import submit_once
from slurmopt.units import seconds


class Sbatch:
    """Submits the rendered script; nothing else is written."""

    slurm = True

    def script(self, job: Job) -> str:
        return render(job)

    def submit(self, job: Job, token: str, retry: bool) -> Submission:
        command = sbatch_command(job, token)
        timeout = seconds(job.settings.launch.submit_timeout)
        return Submission(submit_once(command, token, timeout, retry))


def sbatch_command(job: Job, token: str) -> list[str]:
    """The token goes after the user's own comment, and not into the script, so that a dry run is the script itself."""
    comment = " ".join(filter(None, [job.settings.resources.comment, token]))
    return ["sbatch", "--parsable", f"--comment={comment}", str(job.folder.script)]


BACKEND = Sbatch()
