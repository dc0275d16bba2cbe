"""Queries the states of a sweep's points: from its submissions, the points' own events, and one squeue for all."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from slurmopt import command_output
from slurmopt.backends.array.state import is_local
from slurmopt.errors import SlurmoptError, labelled, one_line, with_place
from slurmopt.grid import submissions
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.submissions import Submission
from slurmopt.run_folder import events
from slurmopt.run_folder.json_values import as_int, number
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.status.query import LOOKED_FOR, ask_runner, ask_slurm, with_unlisted_jobs
from slurmopt.runs.status.state import Slurm
from slurmopt.runs.submit import arrays
from slurmopt.sweeps.status.ended_points import Ends
from slurmopt.sweeps.status.judge_point import PointJudge
from slurmopt.sweeps.status.point_events import Reader
from slurmopt.sweeps.status.point_states import SweepStates

if TYPE_CHECKING:
    pass


def sweep_states(sweep: SweepFolder, fresh: bool = False, metrics: bool = False) -> SweepStates:
    """The states of a sweep's points. `fresh`: asks Slurm now instead of using the shared cached answer; `metrics`:
    keeps the points' metrics and results too.

    Raises ConfigError where sweep.json or `cancelled` is damaged, OSError where the journal cannot be read.
    """
    entries = arrays.known(sweep) or submissions.read(
        sweep.sweep_file
    )  # a launch may have died between writing the two
    created = next(iter(events.read(sweep.events, "created")), {})
    count = as_int(created.get("points")) or max(
        (entry.points.spans[-1][1] + 1 for entry in entries if entry.points), default=0
    )
    slurm, cancelled = None, submissions.cancelled(sweep)
    if is_local(sweep):  # before the journals: what has ended since is in these
        slurm = ask_runner(sweep)
    elif has_lost(sweep, entries, cancelled, fresh):  # Slurm may have the job
        slurm = ask_slurm(fresh)
        entries = [_with_job(entry, slurm) for entry in entries]
    states = SweepStates(sweep, count, entries, Ends(metrics), created=number(created.get("time")))
    judge = PointJudge(states, cancelled, _submit_times(sweep))
    judge.read(Reader(metrics))
    if slurm is not None or judge.needs_slurm(count):
        slurm = slurm or ask_slurm(fresh)
        judge.take_queue(slurm if slurm.here else with_unlisted_jobs(slurm, judge.unfinished_jobs(), fresh))
    judge.judge()
    states.now = time.time()
    return states


def sweep_states_or_none(sweep: SweepFolder) -> SweepStates | None:
    """`sweep_states`; for a sweep that cannot be read prints a line on standard error and returns None."""
    try:
        return sweep_states(sweep)
    except (SlurmoptError, OSError) as error:
        command_output.warn(f"{one_line(labelled(f'{sweep.name}/{sweep.id}', with_place(error)))}")
        return None


def has_lost(sweep: SweepFolder, entries: list[Submission], cancelled: Ranges, fresh: bool) -> bool:
    """Whether Slurm must be asked for the job of a submission whose answer was lost. `fresh`: asks for each such
    submission, because the caller will act on the answer; else only for recent ones, and only where they have points
    that no later job has and that are not cancelled."""
    if is_local(sweep):
        return False
    lost = [at for at, entry in enumerate(entries) if entry.job is None]
    if fresh or not lost:
        return bool(lost)
    submitting = events.read(sweep.events, "submitting")
    times = {str(event.get("token")): number(event.get("time")) or 0.0 for event in submitting}
    for at in lost:
        later = Ranges(span for entry in entries[at + 1 :] if entry.job is not None for span in entry.points.spans)
        is_new = time.time() - times.get(str(entries[at].token), 0.0) < LOOKED_FOR
        if is_new and entries[at].points.difference(later).difference(cancelled):
            return True
    return False


def _with_job(submission: Submission, slurm: Slurm) -> Submission:
    """The submission, with its job where Slurm's queue has one with the submission's token."""
    if submission.job is not None or submission.token is None:
        return submission
    from slurmopt.slurm.find_job import with_token

    return replace(submission, job=with_token(slurm.jobs, submission.token))


def _submit_times(sweep: SweepFolder) -> dict[str, float]:
    """Array job → when it was submitted."""
    submitted = events.read(sweep.events, "submitted")
    return {str(event.get("job")): number(event.get("time")) or 0.0 for event in submitted}
