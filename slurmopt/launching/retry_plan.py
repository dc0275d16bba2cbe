"""Plans what `slurmopt retry` submits: a run's plan or a sweep's script; finds what an earlier retry submitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt.config.imports import import_from
from slurmopt.errors import RunError
from slurmopt.launching.check import check
from slurmopt.launching.job_plan import checked_task, job_for, workdir
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import FINISHED
from slurmopt.runs.journal import read as read_journal
from slurmopt.runs.recovery import changed_config as retries
from slurmopt.runs.recovery.changed_config import More
from slurmopt.runs.status.query import gather
from slurmopt.runs.submit import unfinished_retry
from slurmopt.runs.submit.plan import Plan
from slurmopt.runs.submit.resume import Ended, broken_off_with_job, end_broken_off, ended, undo_broken_off

if TYPE_CHECKING:
    from slurmopt.sweeps.submit.resubmit import Again


def submitted_before(run: RunFolder, words: list[str], more: More) -> str | None:
    """The job of an earlier try of this very retry, or where nothing is typed of any, that did not come to its end, if
    the job lives. RunError where it lives and has not what is typed."""
    if (broken_off := broken_off_with_job(run)) is None:
        return None
    ((status, *_), _) = gather([run], fresh=True)
    if not status.alive:
        return None
    _import_resolvers(run, retries.stored_config(run))
    if (words or more != More()) and not retries.is_repeated(run, broken_off, words, more):
        has = retries.for_people(retries.latest_changes(run))
        has = f" with {has}, and not" if has else ", but not"
        raise RunError(
            f"job {status.journal.job} of an earlier retry is {status.state}{has} with what is typed now; "
            f"first: slurmopt cancel {status.label}"
        )
    end_broken_off(run)
    return status.journal.job


def _import_resolvers(run: RunFolder, stored: dict[str, Any]) -> None:
    for module in retries.imports(stored):
        import_from(retries.launch_directory(run) or Path.cwd(), module)


def plan_of(run: RunFolder, words: list[str], more: More, dry_run: bool = False, again: bool = False) -> Plan:
    """An existing run goes on with a changed config and a script made anew, as if typed where its launch was. One that
    has finished is refused, but for `again`.

    Nothing is written. Raises RunError, ConfigError.
    """
    run_end, journal = ended(run), read_journal(run)
    has_finished = journal.ended is not None and journal.ended.get("outcome") == FINISHED
    if has_finished and not again and unfinished_retry.found(run) is None:  # else a retry that broke off is repeated
        problem = "has finished, so there is nothing to retry; to let it go on all the same, add --again"
        raise RunError(f"{run.name}/{run.id} {problem}")
    _refuse_taken(run_end)
    undo_broken_off(run, none_in_slurm=True)
    stored, home = retries.stored_config(run), retries.launch_directory(run)
    _import_resolvers(run, stored)
    repeated = broken_off_with_job(run)
    if repeated is not None and retries.is_repeated(run, repeated, words, more):
        stored = retries.stored_config(run, repeated)
    else:
        repeated = None
    changed = retries.changed(stored, words, more)
    typed = changed.settings
    kept = typed.environment.snapshot != "off"
    if home is None and not kept and not Path(typed.environment.workdir or "").is_absolute():
        raise RunError("an earlier slurmopt did not note where it was launched; add environment.workdir=DIR")
    home = home or Path.cwd()
    template = str(home / typed.launch.template) if typed.launch.template else None
    once = replace(typed.launch, backend=run_end.backend, template=template, dry_run=dry_run, json=False, wait=False)
    typed = replace(typed, launch=once)
    source = run.code if kept else workdir(typed, home)
    typed = checked_task(typed, source)
    overrides = [*retries.launch_overrides(run), *retries.as_overrides(changed.changes)]
    job = job_for(typed, run, journal.name or run.name, source, run_end.backend, overrides)
    return Plan(
        job, run_end.backend, changed.stored, overrides, source, True, run_end.latest, changed.changes, repeated
    )


def _refuse_taken(run_ended: Ended) -> None:
    """A launcher that broke off may have got its submission through, with the script as it was."""
    if not run_ended.unsettled or run_ended.token is None or run_ended.backend == "local":
        return
    from slurmopt.slurm.find_job import find_token

    if (job := find_token(run_ended.token)) is not None:
        raise RunError(f"its last submission got through, as job {job}; without --dry-run that is noted")


def script_of(planned: Again) -> str | None:
    """A sweep's script with the changed needs, checked against the cluster; None where it stays as it lies there."""
    from slurmopt import backends
    from slurmopt.backends.array.state import is_local
    from slurmopt.slurm.script.job import Array

    if planned.changed is None or not planned.points:
        return None
    run, typed = planned.sweep.run, planned.settings
    kept = typed.environment.snapshot != "off"
    source = run.code if kept else workdir(typed, retries.launch_directory(run) or Path.cwd())
    overrides = [*retries.launch_overrides(run), *retries.as_overrides(planned.changes)]
    array = Array(typed.sweep.packed, typed.sweep.side_by_side, typed.sweep.search is not None)
    backend = backends.load("local" if is_local(planned.sweep) else "sbatch")
    job = replace(job_for(typed, run, run.name, source, "sbatch" if backend.slurm else "local", overrides), sweep=array)
    if backend.slurm and typed.launch.check:
        check(typed, tolerant=False)
    return backend.script(job)
