"""Submits a job exactly once, although sbatch can fail after slurmctld has accepted the job."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from slurmopt.errors import (
    JobError,
    RunError,
    SlurmDown,
    SlurmMissing,
    SlurmRefused,
    SlurmUnreachable,
    SubmissionUnknown,
    one_line,
)
from slurmopt.run_folder import events, private
from slurmopt.run_folder.access.files import NotMine, read_script
from slurmopt.run_folder.access.open_folders import is_swapped
from slurmopt.run_folder.layout import RunFolder
from slurmopt.slow_notice import slow_notice
from slurmopt.slurm import client
from slurmopt.slurm.environment import clean_environment
from slurmopt.slurm.find_job import Sought, find_job

_SBATCH_TIMEOUT = 60.0
_SURE_LOOKS = 3
"""Lookups without the job before it counts as absent: a submission that slurmctld had received but not processed can
appear a moment after it answers again."""
_TRIES = 2
"""The most tries if slurmctld's answers are lost; further ones are left to the user."""
_JOB_ID = re.compile(r"([0-9]+)\s*(?:;.*)?")


def sbatch_once(
    script: Path,
    comment: str | None,
    token: str,
    timeout: float,
    retry: bool,
    options: Sequence[str] = (),
    words: Sequence[str] = (),
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Runs sbatch on `script` until Slurm has one job with `token`, and returns its id.

    The token is appended to the user's `comment`; `options` take precedence over those in the script; `words` are the
    script's arguments. With `retry` an earlier try may have succeeded, so its job is looked up first. `timeout`
    (seconds) bounds the search for a lost answer. Raises SlurmRefused with Slurm's reason; SlurmDown and SlurmMissing
    if nothing was submitted; SubmissionUnknown if that cannot be told; RunError if the script or its folder was
    replaced or became writable for others, in which case nothing was submitted.
    """
    comment_option = f"--comment={' '.join(filter(None, [comment, token]))}"
    command = ["sbatch", "--parsable", comment_option, *options, str(script), *words]
    environment = clean_environment(os.environ, read_script(script))
    deadline, tries, job_sought = time.monotonic() + timeout, 0, sought(script, token, words)
    if retry and (job := look_up(job_sought, deadline, sleep)) is not None:
        return job
    while True:
        _refuse_swapped(script)  # which sbatch opens by its path, minutes after an earlier try
        tries += 1
        try:
            return _try_sbatch(command, environment, job_sought, deadline, sleep)
        except SlurmUnreachable as error:
            if isinstance(error, SlurmDown) or "connect failure" in str(error):  # slurmctld cannot have taken the job
                raise SlurmDown(str(error)) from error
            if (job := look_up(job_sought, deadline, sleep)) is not None:
                return job
            if tries == _TRIES or time.monotonic() >= deadline:
                raise


def sought(script: Path, token: str, words: Sequence[str] = ()) -> Sought:
    """What identifies the job of `script` with these arguments and this `token`."""
    earlier_jobs: set[str] = set()
    for event in events.read(RunFolder(script.parent).events, "submitting", "submitted", "attempt"):
        if event["event"] == "submitting" and event.get("token") == token:
            break
        earlier_jobs.add(str(event.get("job")).split("_")[0])
    return Sought(token, " ".join([str(script), *words]), frozenset(earlier_jobs))


def _try_sbatch(
    command: list[str], environment: dict[str, str], wanted: Sought, deadline: float, sleep: Callable[[float], None]
) -> str:
    """Calls sbatch once, and returns the job id. It is looked up unless sbatch printed an id and nothing else. Raises
    as `client.run` if there is no job."""
    try:
        with slow_notice("waiting for Slurm to take the job"):
            answer = client.run(command, _SBATCH_TIMEOUT, environment)
    except SlurmRefused as error:
        if error.sure or (job := look_up(wanted, deadline, sleep)) is None:
            raise
        return job
    if (printed_id := _JOB_ID.fullmatch(answer.strip())) is not None:
        return printed_id[1]
    if (job := look_up(wanted, deadline, sleep)) is None:  # a site's wrapper, whose lines may have other numbers
        raise SlurmRefused(f"sbatch answered {answer.strip()!r}, and Slurm has no such job")
    return job


def _refuse_swapped(script: Path) -> None:
    if is_swapped(script.parent):
        here = one_line(str(script.parent))
        raise RunError(f"{here} is no longer the folder that the launch made; nothing there is run")
    try:
        private.refuse_foreign_folder(script.parent)
        private.refuse_open_folder(script.parent)
        read_script(script)
    except JobError as error:
        raise RunError(one_line(str(error))) from error
    except NotMine as error:
        raise RunError(f"{one_line(str(script))} belongs to another user; nothing there is run") from error


def look_up(wanted: Sought, deadline: float, sleep: Callable[[float], None] = time.sleep) -> str | None:
    """The job, or None once Slurm has said several times that it has none.

    SubmissionUnknown if Slurm has not answered by `deadline` (of time.monotonic())."""
    with slow_notice("Slurm's answer was lost; looking up whether it took the job"):
        return _look(wanted, deadline, sleep)


def _look(wanted: Sought, deadline: float, sleep: Callable[[float], None]) -> str | None:
    delay, answers = 1.0, 0
    while answers < _SURE_LOOKS:
        try:
            if (job := find_job(wanted)) is not None:
                return job
            answers = 0 if _is_under_way(wanted.token) else answers + 1
            if not answers and time.monotonic() >= deadline:
                raise SubmissionUnknown("an sbatch of an earlier try is still under way")
        except SlurmMissing as error:
            raise SubmissionUnknown(f"{error}; Slurm may have taken the job") from error
        except (SlurmUnreachable, SlurmRefused) as error:  # no answer, and no proof that there is no job
            answers = 0
            if time.monotonic() >= deadline:
                why = "does not answer" if isinstance(error, SlurmUnreachable) else f"gives no clear answer ({error})"
                raise SubmissionUnknown(f"Slurm {why}, and may have taken the job") from error
        if answers < _SURE_LOOKS:
            sleep(delay)
            delay = min(delay * 2, 15)
    return None


def _is_under_way(token: str) -> bool:
    """Whether an sbatch of this submission runs on this machine: it outlives a killed launcher, and a site's wrapper
    can delay it."""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):  # it has just ended
                if token.encode() in (process / "cmdline").read_bytes():
                    return True
    return False
