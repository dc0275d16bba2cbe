"""Handing a run over to Slurm exactly once: its lock, and what its journal knows of earlier tries."""

from __future__ import annotations

import contextlib
import fcntl
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from slurmopt.errors import RunError
from slurmopt.folder import events
from slurmopt.folder.layout import RunFolder
from slurmopt.runs.prepare import folder_errors

_LOCK_PATIENCE = 10.0


@contextlib.contextmanager
def alone(run: RunFolder, patience: float = _LOCK_PATIENCE) -> Iterator[None]:
    """Two submissions of one run at the same moment would both find nothing submitted yet.

    The lock is on a file that nobody replaces, as a retry does with config and script, and belongs to the open file:
    one of fcntl's other kind would be gone as soon as anybody in this process had read it. Raises RunError where
    another holds it for `patience` seconds.
    """
    with folder_errors(run.path), open(run.environment, "ab") as held:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if not isinstance(error, BlockingIOError):  # a file system without locks
                    break
                if time.monotonic() > deadline:
                    raise RunError(f"another launch of {run.path} is under way") from error
                time.sleep(0.1)
        yield


def earlier(run: RunFolder) -> tuple[str | None, str | None, bool]:
    """The token of the latest submission that was tried, the job it became, and whether the launch had noted that."""
    token = job = None
    noted = False
    for event in events.read(run.events):
        if event["event"] == "submitting":
            token, job, noted = event.get("token"), None, False
        elif event["event"] == "submitted" and event.get("token") == token:
            job, noted = event.get("job"), True
        elif event["event"] == "attempt" and job is None:
            job = event.get("job")  # it ran already, although the launch that submitted it never heard so
    return token, job, noted


def hand_over(run: RunFolder, backend: str, submit: Callable[[str, bool], tuple[str, dict[str, Any]]]) -> str:
    """Notes the submission, has `submit` do it, and notes its job, whose id is returned.

    `submit(token, retry)` gives the job's id and what else the journal is to keep; with `retry` an earlier try with
    this token may have got through. To be called with the run's lock held.
    """
    token, job_id, _ = earlier(run)
    retry = token is not None and job_id is None
    token = token if retry and token else f"slurmopt:{secrets.token_hex(8)}"
    events.append(run.events, "submitting", backend=backend, token=token)
    job_id, details = submit(token, retry)
    events.append(run.events, "submitted", backend=backend, token=token, job=job_id, **details)
    return job_id


def cron_line(folder: Path) -> str:
    """A line of crontab that has the runs in `folder` tended."""
    words = [sys.executable, "-m", "slurmopt", "tend", "--folder", str(folder.expanduser().absolute())]
    return f"* * * * * {shlex.join(words)}".replace("%", r"\%")
