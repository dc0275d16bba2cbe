"""`slurmopt cancel`: stopping a run, and making sure that it has stopped.

`--json` prints one object: `name`, `id`, `folder`, `job`, `state` (as `slurmopt status` has it) and `gone` (a bool).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time

from slurmopt.errors import RunError, SlurmError, SlurmRefused
from slurmopt.run_folder import events
from slurmopt.run_folder.json_values import as_int
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.process import alive
from slurmopt.runs import options
from slurmopt.runs.find import find
from slurmopt.runs.journal import Journal, read
from slurmopt.runs.ownership import owner_of, refuse_others
from slurmopt.runs.status.query import Status, gather, of_the_run
from slurmopt.runs.status.state import Slurm
from slurmopt.runs.submit.exactly_once import earlier, note_job

_PATIENCE = 10.0
_POLL = 0.3
_SCANCEL_TIMEOUT = 30.0


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    given = parser().parse_args(argv)
    return cancel(find(given.run, given.folder), given.json)


def cancel(run: RunFolder, as_json: bool) -> int:
    """Stops the run and says so."""
    _refuse_others(run)
    (status,), problem = gather([run], fresh=True)
    if status.journal.unsettled and problem is not None:
        raise SlurmError(f"{status.label}: nobody can tell whether Slurm has its latest job: {problem}")
    _refuse(status)
    _note(status.journal)
    # First, so that a job that ends at once is known to have been cancelled.
    _tell(status.folder, "cancel", status.journal.job)
    _stop(status)
    now = _wait(status)
    print(json.dumps(_as_dict(now)) if as_json else _said(now))
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of `slurmopt cancel`."""
    made = options.parser("cancel", "Stop a run: its ranks are told, and ended if they do not end themselves.")
    options.add_run(made)
    options.add_json(made)
    return made


def _refuse_others(run: RunFolder) -> None:
    """RunError for another user's run, unless its job is that user's too, as Slurm says: Slurm lets coordinators and
    operators end it, and nobody else. A journal of theirs that names one's own job ends nothing."""
    try:
        refuse_others(run)
    except RunError:
        from slurmopt.slurm.absence import users_of

        journal = read(run)
        if journal.local or not journal.job or users_of(journal.job) != {run.path.lstat().st_uid}:
            raise


def _tell(run: RunFolder, word: str, job: str | None) -> None:
    """Notes it in the journal, which may be closed to who ends another user's run: its job notices by itself."""
    try:
        events.append(run.events, word, job=job)
    except PermissionError:
        if owner_of(run) is None:
            raise


def _refuse(status: Status) -> None:
    if status.state == "unsubmitted":
        raise RunError(f"{status.label} was never submitted; there is nothing to cancel")
    if status.state == "unknown" and status.journal.local:
        raise RunError(f"{status.label}: {status.detail}")
    if not status.alive and status.state != "unknown":
        detail = f" ({status.detail})" if status.detail else ""
        raise RunError(f"{status.label} has ended already: {status.state}{detail}")


def _note(journal: Journal) -> None:
    """The job of a submission whose answer was lost: it has been cancelled, and no retry is to count it."""
    token, _, noted = earlier(journal.folder)
    found = not journal.unsettled  # else its job is that of a submission before
    if token is not None and not noted and found and token == journal.token and journal.job and not journal.local:
        note_job(journal.folder, journal.backend or "sbatch", token, journal.job)


def _stop(status: Status) -> None:
    """Tells the job to end. Where that does not reach it, the journal takes the `cancel` back."""
    journal = status.journal
    try:
        if journal.local:
            _terminate(journal)
        else:
            _scancel(status)
    except BaseException:
        _tell(journal.folder, "cancel-failed", journal.job)
        raise


def _terminate(journal: Journal) -> None:
    """SIGTERM to the local runner, which ends its ranks, if it is still that very process."""
    runner = journal.runner or {}
    if alive(runner, journal.folder.path) and (pid := as_int(runner.get("pid"))):
        os.kill(pid, signal.SIGTERM)


def _scancel(status: Status) -> None:
    from slurmopt.slurm import client

    if _is_another(status.journal):
        raise RunError(f"job {status.journal.job} is another job of yours; the journal of {status.label} is wrong")
    try:
        client.run(["scancel", str(status.journal.job)], _SCANCEL_TIMEOUT)
    except SlurmRefused:
        # It may have ended a moment ago: then there is nothing to complain of.
        (now,), _ = gather([status.folder], fresh=True)
        if now.alive:
            raise


def _is_another(journal: Journal) -> bool:
    """Whether Slurm knows the job as one that is not the run's: journals are edited, and copied."""
    from slurmopt.slurm.queue import queue

    try:
        jobs = queue()  # as it was asked for the status a moment ago
    except SlurmError:  # scancel will say the same
        return False
    return journal.job in jobs and not of_the_run(journal, Slurm(jobs)).jobs


def _wait(status: Status) -> Status:
    """The run once it is gone, or as it is when patience ends. Slurm is asked a few times only."""
    deadline, pause = time.monotonic() + _PATIENCE, _POLL
    while True:
        (now,), _ = gather([status.folder], fresh=True)
        if not (now.alive or now.state == "unknown") or time.monotonic() >= deadline:
            return now
        time.sleep(pause)
        pause = pause if now.journal.local else pause * 2


def _said(now: Status) -> str:
    if now.alive or now.state == "unknown":
        return (
            f"{now.label} (job {now.journal.job}) was told to stop and is still {now.state}; "
            f"to see it end: slurmopt status {now.label} --watch"
        )
    if now.state != "cancelled":
        return f"{now.label} had ended before: {now.state}"
    return f"{now.label} (job {now.journal.job}) is cancelled"


def _as_dict(now: Status) -> dict[str, object]:
    folder = now.folder
    return {
        "name": folder.name,
        "id": folder.id,
        "folder": str(folder.path),
        "job": now.journal.job,
        "state": now.state,
        "gone": not (now.alive or now.state == "unknown"),
    }
