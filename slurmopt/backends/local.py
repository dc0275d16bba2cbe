"""The local backend: runs the job script as processes on this machine, with signals and restarts."""

from __future__ import annotations

import fcntl
import socket
import subprocess
import time
from pathlib import Path

from slurmopt.backends.protocol import Submission
from slurmopt.errors import FolderError
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.process import machine, module_words, started_at
from slurmopt.slurm.script.job import Job, lead
from slurmopt.slurm.script.render import render
from slurmopt.units import seconds

_LONGEST_END = 60.0
"""Seconds from the end of a run in its journal to the end of its runner, which writes the report in between."""
_POLL = 0.1


class Local:
    """Starts `slurmopt.backends.runner`, which outlives the launcher and does what Slurm would do.

    Of a range of nodes it uses the smallest number, because one machine runs all ranks.
    """

    slurm = False

    def script(self, job: Job) -> str:
        return render(job)

    def submit(self, job: Job, token: str, retry: bool) -> Submission:
        _await_end_of_earlier_runner(job.folder)
        command = [job.python, *module_words("slurmopt.backends.runner"), str(job.folder.path)]
        if job.settings.resources.time is not None:
            command += ["--time", str(seconds(job.settings.resources.time)), "--lead", str(lead(job.settings))]
        try:
            runner = subprocess.Popen(
                command,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=Path.cwd(),
            )
        except OSError as error:
            raise FolderError(f"cannot start {job.python}: {error.strerror}") from error
        process = {"pid": runner.pid, "pid_started": started_at(runner.pid)}
        details = {**process, "host": socket.gethostname(), "machine": machine()}
        return Submission(f"local-{runner.pid}", details)


def _await_end_of_earlier_runner(folder: RunFolder) -> None:
    """Waits until no runner has the run: a new one would leave it to that, whose last attempt has ended. FolderError
    where it takes too long."""
    deadline = time.monotonic() + _LONGEST_END
    with open(folder.overrides, "r+b") as mine:
        while True:
            try:
                fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise FolderError(f"{folder.name}/{folder.id}: its earlier process has not ended yet") from None
            time.sleep(_POLL)


BACKEND = Local()
