"""The submitit backend: `submitit.SlurmJob(run/submitit, job_id)` gives results, states and logs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from slurmopt.backends.protocol import Submission
from slurmopt.backends.sbatch import Sbatch
from slurmopt.errors import ConfigError
from slurmopt.run_folder.access.files import read_script
from slurmopt.slurm.script.job import Job, processes_per_node
from slurmopt.slurm.script.render import render
from slurmopt.slurm.script.step import rank_arguments


class Submitit:
    """Submits the job with submitit; the submitted function runs a rank of slurmopt."""

    slurm = True

    def script(self, job: Job) -> str:
        if job.settings.task.per == "job":
            raise ConfigError("submitit starts a process for each rank; use launch.backend=sbatch", "task.per=job")
        return render(replace(job, submitit=True))

    def submit(self, job: Job, token: str, retry: bool) -> Submission:
        submission = executor(job, token, retry).submit(
            _rank_entry, [str(job.folder.path), *rank_arguments(job.settings)]
        )
        return Submission(submission.job_id)


def _rank_entry(argv: list[str]) -> Any:
    """What submitit pickles by name and calls in each rank."""
    from importlib import import_module

    # By name: the login side imports nothing of the job side.
    return import_module("slurmopt.job.worker.rank").submitit_task(argv)


def executor(job: Job, token: str, retry: bool) -> Any:
    """A submitit SlurmExecutor that submits `job.folder.script`, exactly once."""
    try:
        from submitit import SlurmExecutor
    except ImportError as error:
        raise ConfigError(
            "submitit is not installed; pip install submitit, or use launch.backend=sbatch",
            "launch.backend",
        ) from error

    class RunExecutor(SlurmExecutor):
        """An executor whose pickle has a fixed name, which the batch shell links to the name with its job id."""

        def _make_submission_file_text(self, command: str, uid: str) -> str:
            return read_script(job.folder.script)

        def _internal_process_submissions(self, delayed_submissions: list[Any]) -> list[Any]:
            (delayed,) = delayed_submissions
            Path(self.folder).mkdir(mode=0o700, exist_ok=True)  # pickles, which whoever reads them runs
            delayed.dump(Path(self.folder) / "submitted.pkl")
            return [self._submit_command(self._submitit_command_str)]

        def _submit_command(self, command: str) -> Any:
            job_id = Sbatch().submit(job, token, retry).job_id
            # Of a range the least: only these ranks leave a result whatever nodes the last attempt had.
            ranks = job.settings.resources.least_nodes * processes_per_node(job)
            submitted = self.job_class(folder=self.folder, job_id=job_id, tasks=list(range(ranks)))
            submitted.paths.submission_file.write_text(self._make_submission_file_text(command, ""), encoding="utf-8")
            return submitted

    return RunExecutor(folder=job.folder.submitit)


BACKEND = Submitit()
