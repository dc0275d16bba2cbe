"""What squeue would list of a sweep on this machine, from its `runner.json` and the processes that are alive."""

from __future__ import annotations

import socket
import time

from slurmopt.backends.array import state as states
from slurmopt.backends.array.state import ArrayJob, State
from slurmopt.grid import submissions
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.submissions import Submission
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.slurm.queue_entry import Queue, QueueEntry

_WAITS = "waiting for free CPUs, memory or GPUs of this machine"
_AGAIN = "its next attempt starts soon"


def queue_of(sweep: SweepFolder) -> tuple[Queue, str | None]:
    """The entries of the sweep's array tasks; and why these cannot be told from here, if so."""
    state = states.read(sweep)
    lives = state.runner_lives
    if lives is None:
        return Queue(), f"the sweep runs on {state.host}; ask there"
    entries: list[QueueEntry] = []
    for submission in submissions.read(sweep.sweep_file):
        job = state.jobs.get(str(submission.job))
        if job is not None:
            entries += _entries(sweep, submission, job, state, lives)
    return Queue({entry.job_id: entry for entry in entries}), None


def _entries(
    sweep: SweepFolder, submission: Submission, job: ArrayJob, state: State, runner_lives: bool
) -> list[QueueEntry]:
    def entry(task: str, word: str, reason: str = "", started: float | None = None) -> QueueEntry:
        used = None if started is None else int(time.time() - started)
        return QueueEntry(
            job_id=f"{submission.job}_{task}",
            state=word,
            reason=reason,
            nodes="" if started is None else state.host or socket.gethostname(),
            start=started,
            time_used=used,
            time_limit=None,
            restarts=0,
            batch_host="",
            comment=submission.token or "",
            command=f"{sweep.script} {submission.number}",
        )

    running = {task: process for task, process in job.running.items() if state.lives(process.pid, process.pid_started)}
    entries = [entry(str(task), "RUNNING", started=process.started) for task, process in running.items()]
    entries += [
        entry(str(task), "FAILED", f"its job script ended with status {status}") for task, status in job.failed.items()
    ]
    if runner_lives:
        between = [task for task in job.running if task not in running]  # the runner notes its end at this moment
        entries += [entry(str(task), "RUNNING", started=job.running[task].started) for task in between]
        entries += [entry(str(task), "PENDING", _AGAIN) for task in job.again]
        if waiting := waiting_tasks(submission, job):
            entries.append(entry(f"[{waiting}]", "PENDING", _WAITS))
    return entries


def waiting_tasks(submission: Submission, job: ArrayJob) -> Ranges:
    """The array tasks that have not been started."""
    return submission.array.difference(job.ended).difference(Ranges.of(sorted({*job.running, *job.again})))


def unfinished_jobs(sweep: SweepFolder, state: State) -> list[str]:
    """The array jobs with tasks that wait, run or are to be started again."""
    jobs = []
    for submission in submissions.read(sweep.sweep_file):
        job = state.jobs.get(str(submission.job), ArrayJob())
        if job.running or job.again or waiting_tasks(submission, job):
            jobs.append(str(submission.job))
    return jobs
