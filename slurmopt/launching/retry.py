"""Carries a retry out as far as to its submission: what was submitted before is found, not submitted again."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from slurmopt.launching import execute
from slurmopt.launching.retry_plan import plan_of, script_of, submitted_before
from slurmopt.runs.submit.resume import note_lost_submission

if TYPE_CHECKING:
    from slurmopt.backends.protocol import Backend
    from slurmopt.run_folder.layout import RunFolder
    from slurmopt.runs.find import Selection
    from slurmopt.runs.recovery.changed_config import More
    from slurmopt.runs.submit.plan import Plan


class ReadyRetry(NamedTuple):
    """A retry that is planned and checked against the cluster."""

    plan: Plan
    backend: Backend
    script: str


def ready_retry(
    run: RunFolder, words: list[str], more: More, dry_run: bool = False, again: bool = False
) -> ReadyRetry | str:
    """The retry of a run, or the job of an earlier try of this very retry, which lives. Raises RunError, ConfigError,
    CheckError."""
    if not dry_run:
        note_lost_submission(run)
        if (job := submitted_before(run, words, more)) is not None:
            return job
    planned = plan_of(run, words, more, dry_run, again)
    return ReadyRetry(planned, *execute.ready(planned))


def retry_run(run: RunFolder, words: list[str], more: More, again: bool) -> str:
    """Submits a run that has ended once more, in its folder; returns the job."""
    from slurmopt.runs.submit.launch_run import submit_run

    ready = ready_retry(run, words, more, again=again)
    return ready if isinstance(ready, str) else submit_run(*ready)[0]


def retry_points(selection: Selection, words: list[str], more: More) -> list[str]:
    """Submits the points of a sweep that ended without success once more; returns the jobs."""
    from slurmopt.sweeps.submit import resubmit

    resubmit.settle(selection.sweep)
    planned = resubmit.plan(selection, words, more, failed_only=False)
    return [*planned.jobs, *resubmit.submit_retry(planned, script_of(planned))]
