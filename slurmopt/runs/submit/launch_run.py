"""Launches the run of a plan: makes its folder, submits it exactly once, and prints its job."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from slurmopt import command_output
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
from slurmopt.run_folder.access.files import read_script
from slurmopt.run_folder.access.open_folders import hold, holding
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import index
from slurmopt.runs.ownership import refuse_taken
from slurmopt.runs.status.next_commands import after_launch, listed
from slurmopt.runs.submit.exactly_once import cron_line, earlier, journaled, run_lock
from slurmopt.runs.submit.new_folder import discard, folder_errors, make_run
from slurmopt.runs.submit.resume import going_on
from slurmopt.slurm.cluster.facts import in_cluster

if TYPE_CHECKING:
    from slurmopt.backends.protocol import Backend
    from slurmopt.runs.submit.plan import Plan


def launch_run(plan: Plan, backend: Backend, script: str) -> int:
    """Submits the run once and prints its job. Follows it if requested. Returns the exit status."""
    run, launch = plan.job.folder, plan.job.settings.launch
    with holding([run.top]):
        job_id, repeated = submit_run(plan, backend, script)
        _print_job(plan, job_id, repeated)
        if backend.slurm and not repeated:
            _warn_where_it_cannot_return(run, job_id)
        wait = launch.wait if launch.wait is not None else not backend.slurm
        return _follow(run, quiet=launch.json) if wait else 0


def submit_run(plan: Plan, backend: Backend, script: str) -> tuple[str, bool]:
    """Makes the run, or takes the existing one, and submits it once. Returns its job, and whether an earlier launch had
    submitted it."""
    if plan.submitted is not None:
        return plan.submitted, True
    run = plan.job.folder
    with holding([run.top]):
        is_new = not plan.existing and _make(plan, script)
        index.note(run)
        with run_lock(run):
            changes: AbstractContextManager[None] = contextlib.nullcontext()
            if plan.existing:
                changes = going_on(plan, script, earlier(run)[:2])
            elif (before := _job_of_earlier_launch(plan)) is not None:  # whoever made the folder
                return before, True
            with changes, _with_way_out(plan, is_new), journaled(run, plan.backend) as submitting:
                submission = backend.submit(plan.job, submitting.token, submitting.retry)
                submitting.job = submission.job_id
                submitting.details = {**(in_cluster() if backend.slurm else {}), **submission.details}
            return submitting.job, False


def _make(plan: Plan, script: str) -> bool:
    """Makes the run folder. Returns whether the run is new; an existing run with the same ID is taken if its script is
    identical."""
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


def _job_of_earlier_launch(plan: Plan) -> str | None:
    """The job of an earlier launch with this ID, if known."""
    run = plan.job.folder
    token, job_id, noted = earlier(run)
    if job_id is not None and not noted:
        events.append(run.events, "submitted", backend=plan.backend, token=token, job=job_id)
    return job_id


@contextlib.contextmanager
def _with_way_out(plan: Plan, is_new: bool) -> Iterator[None]:
    """Removes a new folder whose job Slurm refused. If Slurm has or may have accepted it, the error says how to repeat
    the launch."""
    run = plan.job.folder
    untried = earlier(run)[0] is None
    try:
        yield
    except (SlurmDown, SlurmMissing, SlurmRefused, FolderError):
        if is_new and untried:
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


def _print_job(plan: Plan, job_id: str, repeated: bool) -> None:
    run = plan.job.folder
    if plan.job.settings.launch.json:
        answer: dict[str, Any] = {"run": str(run.path), "name": plan.job.name, "backend": plan.backend}
        command_output.print_json({**answer, "job_ids": [job_id], "runs": 1})
        return
    label = f"{run.name}/{run.id}"
    what = "Started" if plan.backend == "local" else "Submitted"
    what = f"{what} before, and not again:" if repeated else what
    lines = [f"{what} {label} as job {job_id}", f"  folder  {run.path}"]
    if plan.estimate and not repeated:
        lines.append(f"  start   {plan.estimate}")
    lines += listed(after_launch(run, label, of_sweep=False), "next", 7)
    print("\n".join(lines), flush=True)


def _warn_where_it_cannot_return(run: RunFolder, job_id: str) -> None:
    """Warns if the site has switched requeueing off for the job. Slurm is asked only on clusters that may do that."""
    from slurmopt.slurm.cluster.facts import requeue_in_doubt
    from slurmopt.slurm.queue import queue

    if not requeue_in_doubt():
        return
    try:
        entry = queue(fresh=True).get(job_id)
    except SlurmError:  # the job finds out by itself, and says so in its log
        return
    if entry is not None and entry.requeue is False:
        command_output.warn(
            f"this site does not requeue jobs: job {job_id} submits itself again where its nodes may; "
            f"where not, this line of crontab brings it back: {cron_line(run.path.parent.parent)}"
        )


def _follow(run: RunFolder, quiet: bool) -> int:
    """Shows the run until it ends. Ctrl-C detaches from it; the run continues."""
    from slurmopt.runs.desktop import show_end
    from slurmopt.runs.logs.follow import follow

    try:
        status = follow(run, sys.stderr if quiet else sys.stdout)
        show_end(run)
        return status
    except KeyboardInterrupt:
        label = f"{run.name}/{run.id}"
        print(
            f"\nslurmopt: no longer following {label}, which goes on; to end it: slurmopt cancel {label}",
            file=sys.stderr,
        )
        return 130
