"""Carrying a plan out: the run folder, the hand-over exactly once, and what is said about it."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from slurmopt.errors import (
    FolderError,
    RunError,
    SlurmDown,
    SlurmError,
    SlurmMissing,
    SlurmRefused,
    SlurmUnreachable,
    SubmissionNotNoted,
    SubmissionUnknown,
)
from slurmopt.run_folder import events
from slurmopt.run_folder.files import read_script
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.open_folders import hold, holding
from slurmopt.runs.ownership import refuse_taken
from slurmopt.runs.submit.exactly_once import cron_line, earlier, hand_over, run_lock
from slurmopt.runs.submit.new_folder import discard, folder_errors, make_run
from slurmopt.runs.submit.resume import going_on
from slurmopt.slurm.cluster.facts import in_cluster

if TYPE_CHECKING:
    from slurmopt.backends.protocol import Backend
    from slurmopt.runs.submit.plan import Plan


def execute(plan: Plan, backend: Backend, script: str) -> int:
    """Submits the plan once, and says so; waits where that is asked for."""
    with holding([plan.job.folder.top]):
        return _carry_out(plan, backend, script)


def _carry_out(plan: Plan, backend: Backend, script: str) -> int:
    job_id, repeated = submit(plan, backend, script)
    _say(plan, job_id, repeated)
    if backend.slurm and not repeated:
        _warn_where_it_cannot_return(plan.job.folder, job_id)
    launch = plan.job.settings.launch
    wait = launch.wait if launch.wait is not None else not backend.slurm
    return _follow(plan.job.folder, quiet=launch.json) if wait else 0


def submit(plan: Plan, backend: Backend, script: str) -> tuple[str, bool]:
    """Makes the run (or takes the one there is) and submits it once: its job, and whether an earlier launch had."""
    with holding([plan.job.folder.top]):
        return _submit(plan, backend, script)


def _submit(plan: Plan, backend: Backend, script: str) -> tuple[str, bool]:
    if plan.submitted is not None:
        return plan.submitted, True
    run = plan.job.folder
    made = not plan.existing and _make(plan, script)
    with run_lock(run):
        if plan.existing:
            with going_on(plan, script, earlier(run)[:2]):
                return _hand_over(plan, backend, made), False
        before = _submitted(plan)  # another launch with this ID can be quicker, whoever made the folder
        return before or _hand_over(plan, backend, made), before is not None


def _make(plan: Plan, script: str) -> bool:
    """Whether the run is new. One with the same ID is gone on with if it is the very same script."""
    run = plan.job.folder
    if not os.path.lexists(run.path):
        try:
            make_run(plan.job, script, plan.stored, plan.overrides, plan.source)
            return True
        except FileExistsError:
            pass  # another launch with this ID was quicker
    hold(run.path)
    refuse_taken(run)
    with folder_errors(run.path):
        same = read_script(run.script) == script
    if not same:
        raise RunError(f"launch.id: {run.id!r} is taken by another run at {run.path}; choose another ID")
    return False


def _submitted(plan: Plan) -> str | None:
    """The job that an earlier launch with this ID became, if that is known."""
    run = plan.job.folder
    token, job_id, noted = earlier(run)
    if job_id is not None and not noted:
        events.append(run.events, "submitted", backend=plan.backend, token=token, job=job_id)
    return job_id


def _hand_over(plan: Plan, backend: Backend, made: bool) -> str:
    """Submits the run; the id of its job, which an earlier try may have submitted already."""
    run = plan.job.folder
    untried = earlier(run)[0] is None

    def submit(token: str, retry: bool) -> tuple[str, dict[str, Any]]:
        submission = backend.submit(plan.job, token, retry)
        return submission.job_id, {**(in_cluster() if backend.slurm else {}), **submission.details}

    try:
        return hand_over(run, plan.backend, submit)
    except (SlurmDown, SlurmMissing, SlurmRefused, FolderError):
        if made and untried:
            discard(run)
        raise
    except (SlurmUnreachable, SubmissionUnknown) as error:
        raise SubmissionUnknown(f"{error}; once it answers, {_repeat(plan)}") from error
    except SubmissionNotNoted as error:
        raise SubmissionNotNoted(f"{error}; once it can be written, {_repeat(plan)}") from error


def _repeat(plan: Plan) -> str:
    run = plan.job.folder
    if plan.changes is not None:
        return f"repeat slurmopt retry {run.name}/{run.id} with the same words: it never submits twice"
    again = f"launch.run={run.name}/{run.id}" if plan.existing else f"launch.id={run.id}"
    return f"repeat the launch with {again}: it never submits twice"


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


def _warn_where_it_cannot_return(run: RunFolder, job_id: str) -> None:
    """Says so where the site has taken the wish to be requeued away. Slurm is asked only where it may do that."""
    from slurmopt.slurm.cluster.facts import requeue_in_doubt
    from slurmopt.slurm.queue import queue

    if not requeue_in_doubt():
        return
    try:
        entry = queue(fresh=True).get(job_id)
    except SlurmError:  # the job finds out by itself, and says so in its log
        return
    if entry is not None and entry.requeue is False:
        print(
            f"slurmopt: this site does not requeue jobs: job {job_id} submits itself again where its nodes may; "
            f"where not, this line of crontab brings it back: {cron_line(run.path.parent.parent)}",
            file=sys.stderr,
        )


def _follow(run: RunFolder, quiet: bool) -> int:
    """Shows the run until it ends. Ctrl-C lets go of it; the run goes on."""
    from slurmopt.runs.logs.follow import follow

    try:
        return follow(run, sys.stderr if quiet else sys.stdout)
    except KeyboardInterrupt:
        label = f"{run.name}/{run.id}"
        print(f"\nslurmopt: let go of {label}, which goes on; to end it: slurmopt cancel {label}", file=sys.stderr)
        return 130
