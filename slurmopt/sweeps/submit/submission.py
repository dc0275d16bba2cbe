"""Submitting a sweep: one array job now, and the next ones as the site's limits make room, each point exactly once."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt import command_output
from slurmopt.backends.array import start, state
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
from slurmopt.grid import points_file
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.submissions import Submission
from slurmopt.run_folder.access.files import read_script, replace_text
from slurmopt.run_folder.access.open_folders import hold, holding
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs import index
from slurmopt.runs.journal import point_count
from slurmopt.runs.ownership import refuse_taken
from slurmopt.runs.status.next_commands import after_launch, listed
from slurmopt.runs.submit import arrays
from slurmopt.runs.submit.exactly_once import run_lock
from slurmopt.runs.submit.new_folder import discard, folder_errors, make_run
from slurmopt.sweeps.definition.search import make_study
from slurmopt.sweeps.submit.backlog import at_once_here, left, submit_what_fits, tasks_here

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings
    from slurmopt.sweeps.submit.plan import SweepPlan


def launch_sweep(plan: SweepPlan, script: str) -> int:
    """Submits the sweep and prints its jobs; watches it where that is asked for. Returns the exit status."""
    with holding([plan.sweep.path]):
        submissions, repeated = submit_sweep(plan, script)
        print_jobs(plan, submissions, repeated)
        return _watch(plan) if _waits(plan) else 0


def _waits(plan: SweepPlan) -> bool:
    """Whether the launch shows the sweep until it ends: where that is asked for, and of a sweep on this machine in a
    terminal."""
    launch = plan.job.settings.launch
    if launch.wait is not None:
        return launch.wait
    return plan.backend == "local" and not launch.json and sys.stdout.isatty()


def _watch(plan: SweepPlan) -> int:
    """Shows the sweep until it ends; the exit status is 1 where a point ended other than well."""
    from slurmopt.runs.find import Selection
    from slurmopt.runs.status.watch import redraw
    from slurmopt.sweeps.status.overview import redrawn_overview
    from slurmopt.sweeps.status.query import sweep_states

    sweep = plan.sweep
    try:
        with contextlib.redirect_stdout(sys.stderr if plan.job.settings.launch.json else sys.stdout):
            if not redraw(lambda: redrawn_overview([Selection(sweep)])):
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        print(
            f"\nslurmopt: no longer following the sweep, which goes on; to end it: slurmopt cancel {sweep.path}",
            file=sys.stderr,
        )
        return 130
    return 0 if set(sweep_states(sweep).counts()) == {"finished"} else 1


def submit_sweep(plan: SweepPlan, script: str) -> tuple[list[Submission], bool]:
    """Makes the sweep, or takes the one there is, and submits what fits; also whether there was nothing left to do.

    Raises SlurmRefused and SlurmDown with nothing left behind, SubmissionUnknown where nobody can tell.
    """
    is_new = _make(plan, script)
    sweep = plan.sweep
    index.note(sweep.run)
    with run_lock(sweep.run):
        make_study(sweep, plan.job.settings)
        before = _with_jobs(sweep)
        try:
            arrays.settle(sweep, plan.job.settings, point_count(sweep))
            submit_what_fits(sweep, plan.job.settings)
            _start_here(sweep)
        except (SlurmDown, SlurmMissing, SlurmRefused) as error:
            if new := jobs_since(sweep, before):
                rest = f"the array itself tries the others again, and so does the launch with launch.id={sweep.id}"
                raise partly(new, error, rest) from error
            _discard_unsubmitted(sweep, is_new)
            raise
        except KeyboardInterrupt:
            if new := jobs_since(sweep, before):
                command_output.warn(f"{_taken(new)}; to end it: slurmopt cancel {sweep.path}")
            _discard_unsubmitted(sweep, is_new)
            raise
        except (SlurmUnreachable, SubmissionUnknown) as error:
            again = f"repeat the launch with launch.id={sweep.id}: it never submits twice"
            raise SubmissionUnknown(f"{error}; once it answers, {again}") from error
        except (SubmissionNotNoted, FolderError, OSError) as error:
            new = jobs_since(sweep, before)
            if not new and not isinstance(error, SubmissionNotNoted):
                _discard_unsubmitted(sweep, is_new and isinstance(error, FolderError))
                raise
            again = f"repeat the launch with launch.id={sweep.id}: it never submits twice"
            raise SubmissionNotNoted(f"{not_noted(new, error)}; once it can be written, {again}") from error
        after = _with_jobs(sweep)
    return after, len(after) == len(before)


def _start_here(sweep: SweepFolder) -> None:
    """Starts the runner of a sweep on this machine, where array tasks are left."""
    if state.is_local(sweep):
        start.start_runner(sweep, [str(entry.job) for entry in _with_jobs(sweep)])


def not_noted(new: list[Submission], error: SubmissionNotNoted | FolderError | OSError) -> str:
    """What a file that could not be written after Slurm had taken the array jobs `new` means."""
    if not new:
        return str(error)
    return f"{_taken(new)}{'; ' if isinstance(error, SubmissionNotNoted) else ', but '}{error}"


def _taken(new: list[Submission]) -> str:
    jobs = ", ".join(str(submission.job) for submission in new)
    return f"job {jobs} is submitted" if len(new) == 1 else f"jobs {jobs} are submitted"


def partly(new: list[Submission], error: SlurmError, then: str) -> SlurmError:
    """The error of an array job that Slurm did not take after it had taken those of `new`: these go on."""
    message = f"{_taken(new)}, and the next array job is not: {error}; {then}"
    return SlurmRefused(message, error.sure) if isinstance(error, SlurmRefused) else type(error)(message)


def jobs_since(sweep: SweepFolder, before: list[Submission]) -> list[Submission]:
    """The submissions that became a job after `before` was read."""
    had = {submission.job for submission in before}
    return [submission for submission in _with_jobs(sweep) if submission.job not in had]


def _discard_unsubmitted(sweep: SweepFolder, is_new: bool) -> None:
    if is_new and not arrays.known(sweep):
        discard(sweep.run)


def _with_jobs(sweep: SweepFolder) -> list[Submission]:
    return [submission for submission in arrays.known(sweep) if submission.job is not None]


def _make(plan: SweepPlan, script: str) -> bool:
    """Whether the sweep is new. One with the same ID is gone on with if it has the same script and points."""
    run = plan.job.folder
    if not os.path.lexists(run.path):
        try:
            count = len(plan.points)
            fill = functools.partial(_fill, plan)
            make_run(plan.job, script, plan.stored, plan.overrides, plan.source, fill, points=count)
            return True
        except FileExistsError:
            pass  # another launch with this ID was quicker
    hold(run.path)
    refuse_taken(run)
    with folder_errors(run.path):
        _refuse_another(plan, script)
    return False


def _fill(plan: SweepPlan, draft: Path) -> None:
    sweep = SweepFolder(draft)
    points_file.save(plan.points, sweep.points_file)
    for name, content in plan.files.items():
        (draft / name).touch(mode=0o600)
        (draft / name).write_bytes(content)
    replace_text(sweep.more, "")
    if plan.backend == "local":
        state.write(sweep, state.State())


def _refuse_another(plan: SweepPlan, script: str) -> None:
    """The sweep that is there is taken as it is, where it is the same but for the order of a shuffle."""
    from slurmopt.grid.points_file import same_points

    sweep = plan.sweep
    if not sweep.points_file.is_file() or read_script(sweep.script) != script:
        raise RunError(f"launch.id: {sweep.id!r} is taken by another run at {sweep.path}; choose another ID")
    if not same_points(points_file.load(sweep.points_file), plan.points):
        raise RunError(f"launch.id: {sweep.id!r} is taken by other points at {sweep.path}; choose another ID")


def print_jobs(plan: SweepPlan, submissions: list[Submission], repeated: bool) -> None:
    """What a person, or a script, wants to know of it."""
    sweep = plan.sweep
    count = point_count(sweep)
    jobs = [submission.job for submission in submissions]
    if plan.job.settings.launch.json:
        answer: dict[str, Any] = {"run": str(sweep.path), "name": plan.job.name, "backend": plan.backend}
        command_output.print_json({**answer, "job_ids": jobs, "runs": count, "waiting": len(left(sweep))})
        return
    label = f"{sweep.name}/{sweep.id}"
    what = "Submitted before, and not again:" if repeated else "Submitted"
    print(f"{what} {label}, {_points(count)}, as {_jobs(submissions)}\n  folder  {sweep.path}")
    if plan.backend == "local":
        print(f"  here    {at_once_here(plan.job.settings)} at a time on this machine")
    if waiting := left(sweep):
        print(f"  later   {_points(len(waiting))}, which the array itself submits as the site's limits make room")
    if plan.estimate and not repeated:
        print(f"  start   {plan.estimate}")
    print("\n".join(listed(after_launch(sweep.run, label, of_sweep=True), "next", 7)), flush=True)


def _points(count: int) -> str:
    return f"{count:,} points" if count != 1 else "1 point"


def _jobs(submissions: list[Submission]) -> str:
    shown = [
        f"job {submission.job} ({submission.size:,} array task{'s' if submission.size != 1 else ''})"
        for submission in submissions[:3]
    ]
    more = [f"{len(submissions) - 3} more"] if len(submissions) > 3 else []
    return ", ".join([*shown, *more])


def submit_points(sweep: SweepFolder, settings: Settings, points: Ranges) -> list[Submission]:
    """Submits points of a sweep once more, in as many array jobs as they need. With the sweep's lock held."""
    from slurmopt.slurm.cluster.facts import facts
    from slurmopt.sweeps.submit.plan import first_batch

    is_here = state.is_local(sweep)
    count = point_count(sweep)
    most = tasks_here(settings, count) if is_here else facts().max_array_size
    arrays.settle(sweep, settings, count)
    submissions = []
    for part, among in [(points, None)] if settings.sweep.packed else arrays.numbered_as_before(sweep, points):
        while part:
            batch = replace(first_batch(part, settings.sweep, most), among=among)
            submissions.append(arrays.submit_array(sweep, settings, batch, count))
            part = part.difference(batch.points)
    if is_here:
        _start_here(sweep)
    return submissions
