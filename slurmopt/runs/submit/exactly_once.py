"""Submitting a run exactly once: its lock, and what its journal knows of earlier tries."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurmopt.errors import (
    FolderError,
    RunError,
    SlurmDown,
    SlurmMissing,
    SlurmRefused,
    SubmissionNotNoted,
    SubmissionUnknown,
    one_line,
    why_failed,
)
from slurmopt.run_folder import events
from slurmopt.run_folder.access import file_lock
from slurmopt.run_folder.access.files import NotMine, open_append, read_script
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.access.temporary import clear, clear_drafts
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.replaced_folders import refuse_swapped
from slurmopt.runs.submit.lock_file import claimed

_LOCK_PATIENCE = 10.0


@contextlib.contextmanager
def run_lock(run: RunFolder, patience: float = _LOCK_PATIENCE) -> Iterator[None]:
    """Holds the run's lock, so that two concurrent submissions of one run do not both find that nothing is submitted.
    RunError if another process holds it for `patience` seconds."""
    with locked(run, patience) as is_ours:
        if not is_ours:
            raise RunError(f"another launch of {run.path} is under way")
        yield


@contextlib.contextmanager
def locked(run: RunFolder, patience: float) -> Iterator[bool]:
    """Holds the run's lock. Yields False if another process has held it for `patience` seconds.

    It is a lock file, because some file systems have no locks, or locks that hold on one node only. If there are locks,
    one is taken first: it ends with its holder, and thousands of processes can wait for it.
    """
    from slurmopt.runs.submit.new_folder import (
        folder_errors,  # which brings Hydra: 0.2 s that a look at runs does without
    )

    deadline = time.monotonic() + patience
    with folder_errors(run.path):
        descriptor = open_append(run.submission)  # errors below are not about this file
    with os.fdopen(descriptor, "ab") as file:
        if file_lock.held(file.fileno(), deadline) is False:
            yield False
            return
        with claimed(run.submitter, max(0.0, deadline - time.monotonic())) as is_ours:
            if is_ours:
                clear(held(run.path))
                clear_drafts(run.path.parent)
            yield is_ours


def earlier(run: RunFolder) -> tuple[str | None, str | None, bool]:
    """The token of the latest try to submit, its job, and whether the launch had noted the job."""
    token = job = None
    noted = False
    for event in events.read(run.events, "submitting", "submitted", "submit-failed", "attempt"):
        if event["event"] == "submitting":
            token, job, noted = event.get("token"), None, False
        elif event["event"] == "submitted" and event.get("token") == token:
            job, noted = event.get("job"), True
        elif event["event"] == "submit-failed" and event.get("token") == token:
            token = None
        elif event["event"] == "attempt" and job is None:
            job = event.get("job")  # it ran already, although the launch that submitted it never heard so
    return token, job, noted


@dataclass
class Submitting:
    """A submission that the journal has as `submitting`; the caller sets `job` once it is submitted."""

    token: str
    retry: bool
    """Whether an earlier try with this token may have succeeded."""
    job: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    """Further fields of the `submitted` event."""


@contextlib.contextmanager
def journaled(run: RunFolder, backend: str, **extra_fields: Any) -> Iterator[Submitting]:
    """Writes `submitting` to the journal, and after the block, which submits the script, the job that it has set.

    `extra_fields`: of the `submitting` event. To be used with the run's lock held. Raises what the block raises,
    FolderError where script or journal fail before it, and SubmissionNotNoted where the journal cannot be written and
    the job is submitted; RunError where something else is in the place of a folder that this process holds.
    """
    refuse_swapped(run)
    token, job_id, _ = earlier(run)
    nothing = "nothing" if token is None and job_id is None else "no further job"
    retry = token is not None and job_id is None
    token = token if retry and token else f"slurmopt:{secrets.token_hex(8)}"
    try:
        path = run.script
        read_script(path)  # which the submission needs: an error now says that there is no job
        path = run.events
        events.append(path, "submitting", backend=backend, token=token, **extra_fields)
    except NotMine as error:
        raise RunError(f"{one_line(str(path))} belongs to another user; nothing there is run") from error
    except OSError as error:
        raise FolderError(f"{path}: {why_failed(error)}; {nothing} was submitted") from error
    try:
        refuse_swapped(run)
        submitting = Submitting(token, retry)
        yield submitting
    except (RunError, SlurmDown, SlurmMissing, SlurmRefused) as error:
        if retry and isinstance(error, RunError):  # an earlier try may have got through
            raise
        with contextlib.suppress(OSError):  # a full disk: then somebody looks for a job, in vain
            events.append(run.events, "submit-failed", backend=backend, token=token, reason=one_line(str(error)))
        raise
    except OSError as error:  # of a file that belongs to the submission
        raise SubmissionUnknown(f"{why_failed(error)} while Slurm was asked, which may have taken the job") from error
    note_job(run, backend, token, submitting.job, **submitting.details)


def note_job(run: RunFolder, backend: str, token: str | None, job: str, **details: Any) -> None:
    """Notes the job of a submission. SubmissionNotNoted if the journal cannot be written."""
    try:
        events.append(run.events, "submitted", backend=backend, token=token, job=job, **details)
    except OSError as error:
        message = f"job {job} is submitted, but {run.events} could not be written ({why_failed(error)})"
        raise SubmissionNotNoted(message) from error


def cron_line(folder: Path) -> str:
    """The crontab line that runs `slurmopt tend` on `folder`."""
    words = [sys.executable, "-m", "slurmopt", "tend", "--folder", str(folder.expanduser().absolute())]
    # In the login shell's environment, which is the job's then; cron's own is nearly empty, and it changes a bare %.
    return f"* * * * * {shlex.join(['bash', '-lc', shlex.join(words)])}".replace("%", r"\%")
