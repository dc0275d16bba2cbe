"""Carrying a plan out: the run folder, the hand-over exactly once, and what is said about it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import secrets
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from slurmopt.errors import RunError, SlurmDown, SlurmRefused, SlurmUnreachable, SubmissionUnknown
from slurmopt.folder import events
from slurmopt.folder.layout import RunFolder
from slurmopt.runs.prepare import discard, folder_errors, make_run

if TYPE_CHECKING:
    from slurmopt.backends.protocol import Backend
    from slurmopt.runs.plan import Plan

_LOCK_PATIENCE = 10.0


def carry_out(plan: Plan, backend: Backend, script: str) -> int:
    """Makes the run (or takes the one that is there), submits it once, and says so; waits where that is asked for."""
    run, launch = plan.job.folder, plan.job.settings.launch
    made = not plan.existing and _make(plan, script)
    with _only_launch(run):
        before = None if made or plan.existing else _submitted(plan)
        job_id = before or _hand_over(plan, backend, made)
    _say(plan, job_id, repeated=before is not None)
    wait = launch.wait if launch.wait is not None else not backend.slurm
    return _follow(run, quiet=launch.json) if wait else 0


def _make(plan: Plan, script: str) -> bool:
    """Whether the run is new. One with the same ID is gone on with if it is the very same script."""
    run = plan.job.folder
    if not run.path.exists():
        try:
            make_run(plan.job, script, plan.stored, plan.overrides, plan.source)
            return True
        except FileExistsError:
            pass  # another launch with this ID was quicker
    with folder_errors(run.path):
        same = run.script.read_text(encoding="utf-8") == script
    if not same:
        raise RunError(f"launch.id: {run.id!r} is taken by another run at {run.path}; choose another ID")
    return False


@contextlib.contextmanager
def _only_launch(run: RunFolder) -> Iterator[None]:
    """Two launches of one run at the same moment would both find nothing submitted yet."""
    with folder_errors(run.path), open(run.script, "r+b") as script:
        deadline = time.monotonic() + _LOCK_PATIENCE
        while True:
            try:
                fcntl.lockf(script, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if not isinstance(error, BlockingIOError):  # a file system without locks
                    break
                if time.monotonic() > deadline:
                    raise RunError(f"another launch of {run.path} is under way") from error
                time.sleep(0.1)
        yield


def _submitted(plan: Plan) -> str | None:
    """The job that an earlier launch with this ID became, if that is known."""
    run = plan.job.folder
    token, job_id, noted = _earlier(run)
    if job_id is not None and not noted:
        events.append(run.events, "submitted", backend=plan.backend, token=token, job=job_id)
    return job_id


def _hand_over(plan: Plan, backend: Backend, made: bool) -> str:
    """Submits the run; the id of its job, which an earlier try may have submitted already."""
    run = plan.job.folder
    token, job_id, _ = _earlier(run)
    retry = token is not None and job_id is None
    token = token if retry and token else f"slurmopt:{secrets.token_hex(8)}"
    events.append(run.events, "submitting", backend=plan.backend, token=token)
    try:
        submission = backend.submit(plan.job, token, retry)
    except (SlurmDown, SlurmRefused):
        if made:
            discard(run)
        raise
    except (SlurmUnreachable, SubmissionUnknown) as error:
        raise SubmissionUnknown(_repeat(run, error)) from error
    events.append(
        run.events, "submitted", backend=plan.backend, token=token, job=submission.job_id, **submission.details
    )
    return submission.job_id


def _repeat(run: RunFolder, error: Exception) -> str:
    return f"{error}; once it answers, repeat the launch with launch.id={run.id}: it never submits twice"


def _earlier(run: RunFolder) -> tuple[str | None, str | None, bool]:
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


def _say(plan: Plan, job_id: str, repeated: bool) -> None:
    run = plan.job.folder
    if plan.job.settings.launch.json:
        answer: dict[str, Any] = {"run": str(run.path), "name": plan.job.name, "backend": plan.backend}
        print(json.dumps({**answer, "job_ids": [job_id], "runs": 1}), flush=True)
        return
    label = f"{run.name}/{run.id}"
    what = "Started" if plan.backend == "local" else "Submitted"
    what = f"{what} before, and not again:" if repeated else what
    lines = [f"{what} {label} as job {job_id}", f"  folder  {run.path}"]
    if plan.estimate and not repeated:
        lines.append(f"  start   {plan.estimate}")
    lines.append(f"  next    slurmopt status {label} · slurmopt logs {label} --follow · slurmopt cancel {label}")
    print("\n".join(lines), flush=True)


def _follow(run: RunFolder, quiet: bool) -> int:
    """Shows the run until it ends. Ctrl-C lets go of it; the run goes on."""
    from slurmopt.runs.follow import follow

    try:
        return follow(run, sys.stderr if quiet else sys.stdout)
    except KeyboardInterrupt:
        label = f"{run.name}/{run.id}"
        print(f"\nslurmopt: let go of {label}, which goes on; to end it: slurmopt cancel {label}", file=sys.stderr)
        return 130
