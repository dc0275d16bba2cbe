"""Cancels a run and waits until it has stopped."""

from __future__ import annotations

import os
import signal
import time

from slurmopt.errors import RunError, SlurmError, SlurmRefused
from slurmopt.run_folder import events
from slurmopt.run_folder.json_values import as_int
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.process import alive
from slurmopt.runs.journal import Journal, read
from slurmopt.runs.ownership import owner_of, refuse_others
from slurmopt.runs.status.query import Status, gather, without_foreign_job
from slurmopt.runs.status.state import Slurm
from slurmopt.runs.submit.exactly_once import earlier, note_job

_WAIT = 10.0
_POLL = 0.3
_SCANCEL_TIMEOUT = 30.0


def cancel(run: RunFolder) -> Status:
    """Stops the run. Returns its status once it has stopped, or after ten seconds.

    Raises RunError where there is nothing to stop or the run is another user's, SlurmError where Slurm cannot tell or
    refuses.
    """
    _refuse_others(run)
    (status,), problem = gather([run], fresh=True)
    if status.journal.unsettled and problem is not None:
        raise SlurmError(f"{status.label}: it is not known whether Slurm has its latest job: {problem}")
    _refuse_ended(status)
    _note_lost_job(status.journal)
    # Noted before scancel, so that a job that ends at once counts as cancelled.
    _append(status.folder, "cancel", status.journal.job)
    _stop(status)
    return _wait(status)


def _refuse_others(run: RunFolder) -> None:
    """RunError for another user's run, unless Slurm says that its job is that user's too: Slurm lets coordinators and
    operators end it, and nobody else. Another user's journal that names a job of one's own ends nothing."""
    try:
        refuse_others(run)
    except RunError:
        from slurmopt.slurm.absence import users_of

        journal = read(run)
        if journal.local or not journal.job or users_of(journal.job) != {run.path.lstat().st_uid}:
            raise


def _append(run: RunFolder, event: str, job: str | None) -> None:
    """Appends `event` to the journal. A coordinator who cancels another user's run may not write there; the job then
    notices by itself that it was cancelled."""
    try:
        events.append(run.events, event, job=job)
    except PermissionError:
        if owner_of(run) is None:
            raise


def _refuse_ended(status: Status) -> None:
    if status.state == "unsubmitted":
        raise RunError(f"{status.label} was never submitted; there is nothing to cancel")
    if status.state == "unknown" and status.journal.local:
        raise RunError(f"{status.label}: {status.detail}")
    if not status.alive and status.state != "unknown":
        detail = f" ({status.detail})" if status.detail else ""
        raise RunError(f"{status.label} has ended already: {status.state}{detail}")


def _note_lost_job(journal: Journal) -> None:
    """Notes the job of a submission whose answer was lost: it is cancelled now, and a retry must not count it."""
    token, _, noted = earlier(journal.folder)
    is_latest = not journal.unsettled  # otherwise `journal.job` is that of an earlier submission
    if token is not None and not noted and is_latest and token == journal.token and journal.job and not journal.local:
        note_job(journal.folder, journal.backend or "sbatch", token, journal.job)


def _stop(status: Status) -> None:
    """Ends the job. Where that fails, appends `cancel-failed`, which takes `cancel` back."""
    journal = status.journal
    try:
        if journal.local:
            _terminate(journal)
        else:
            _scancel(status)
    except BaseException:
        _append(journal.folder, "cancel-failed", journal.job)
        raise


def _terminate(journal: Journal) -> None:
    """Sends SIGTERM to the local runner, which ends its ranks, if the process with its pid is still that runner."""
    runner = journal.runner or {}
    if alive(runner, journal.folder.path) and (pid := as_int(runner.get("pid"))):
        os.kill(pid, signal.SIGTERM)


def _scancel(status: Status) -> None:
    from slurmopt.slurm import client

    if _is_another_job(status.journal):
        raise RunError(f"job {status.journal.job} is another job of yours; the journal of {status.label} is wrong")
    try:
        client.run(["scancel", str(status.journal.job)], _SCANCEL_TIMEOUT)
    except SlurmRefused:
        # No error where the job has ended a moment ago.
        (status_now,), _ = gather([status.folder], fresh=True)
        if status_now.alive:
            raise


def _is_another_job(journal: Journal) -> bool:
    """Whether Slurm knows the job as one that is not the run's: journals are edited, and copied."""
    from slurmopt.slurm.queue import queue

    try:
        jobs = queue()  # the answer that was fetched for the status a moment ago
    except SlurmError:  # scancel will raise the same
        return False
    return journal.job in jobs and not without_foreign_job(journal, Slurm(jobs)).jobs


def _wait(status: Status) -> Status:
    """The status once the run has stopped, or when the time is up. The pauses double, to spare slurmctld."""
    deadline, pause = time.monotonic() + _WAIT, _POLL
    while True:
        (status_now,), _ = gather([status.folder], fresh=True)
        if not (status_now.alive or status_now.state == "unknown") or time.monotonic() >= deadline:
            return status_now
        time.sleep(pause)
        pause = pause if status_now.journal.local else pause * 2
