"""Going on with an existing run: whether it may, and the stored config and script, as they are or changed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmopt.errors import ConfigError, RunError, SubmissionNotNoted, SubmissionUnknown
from slurmopt.run_folder import events, supervisor_file
from slurmopt.run_folder.access.files import replace_text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.find import find
from slurmopt.runs.journal import Journal
from slurmopt.runs.journal import read as read_journal
from slurmopt.runs.ownership import refuse_foreign_run
from slurmopt.runs.status.query import gather
from slurmopt.runs.submit import unfinished_retry
from slurmopt.runs.submit.exactly_once import earlier, note_job, run_lock
from slurmopt.runs.submit.new_folder import link_package
from slurmopt.slurm.cluster.facts import in_cluster
from slurmopt.slurm.script.render import supervisor
from slurmopt.slurm.states import is_over

if TYPE_CHECKING:
    from slurmopt.config.launch import Launch
    from slurmopt.config.schema import Settings
    from slurmopt.runs.submit.plan import Plan
    from slurmopt.runs.submit.unfinished_retry import Unfinished
    from slurmopt.slurm.queue_entry import QueueEntry

_WHO = "launch.run: "
_PATIENCE = 120.0
"""Seconds for a slurmctld that does not answer."""


@dataclass(frozen=True)
class Ended:
    """A run of one's own that is not alive, so that it can go on."""

    run: RunFolder
    backend: str
    """What it was last submitted by."""
    token: str | None
    """Of that submission; None where it was refused."""
    job: str | None
    """What became of it, as far as the journal knows."""

    @property
    def latest(self) -> tuple[str | None, str | None]:
        """That submission's token and job."""
        return self.token, self.job

    @property
    def unsettled(self) -> bool:
        """Whether nobody knows what became of that submission."""
        return self.token is not None and self.job is None


@dataclass(frozen=True)
class Resumed:
    """A run that goes on with its own config and script."""

    run: RunFolder
    backend: str
    after: tuple[str | None, str | None]
    """The token and the job of its latest submission."""
    job: str | None
    """What an earlier `launch.run` that broke off has submitted: nothing is left to do."""
    stored: dict[str, Any]
    settings: Settings


def resume(asked: Launch) -> Resumed:
    """The run that `launch.run` means, and its stored config: plain, and typed with what is said of `launch` now.

    Raises RunError while the run is alive, ConfigError for overrides that it cannot take.
    """
    from slurmopt.config.composition.settings import load

    run = find(asked.run, Path(asked.folder))
    if run.in_sweep:
        raise RunError(f"{_WHO}{run.name}/{run.id} is a point of a sweep; slurmopt retry {run.name}/{run.id}")
    job = None if asked.dry_run else note_lost_submission(run)
    backend, after = _submitted_by(run, _WHO), earlier(run)[:2]
    if job is None:
        run_end = ended(run, _WHO)
        backend, after = run_end.backend, run_end.latest
        undo_broken_off(run, none_in_slurm=False)
    stored, typed = load(run.config)
    if asked.backend not in ("auto", backend):
        raise ConfigError(f"the script of {run.id} was made for {backend}; leave it out", "launch.backend")
    launch = replace(asked, backend=backend, name=run.name)
    return Resumed(run, backend, after, job, stored, replace(typed, launch=launch))


def ended(run: RunFolder, who: str = "") -> Ended:
    """The run, if it is the user's own and not alive; RunError, which begins with `who`, otherwise."""
    refuse_foreign_run(run, who)
    token, job, _ = earlier(run)  # before Slurm is asked: a submission in between is seen in either
    _refuse_alive(run, who)
    return Ended(run, _submitted_by(run, who), token, job)


def _submitted_by(run: RunFolder, who: str) -> str:
    """The backend of the run's latest submission."""
    tried = [event.get("backend") for event in events.read(run.events, "submitting")]
    if not tried or not isinstance(tried[-1], str):
        raise RunError(f"{who}the journal {run.events} does not say how the run was submitted")
    return tried[-1]


def note_lost_submission(run: RunFolder) -> str | None:
    """Notes the job of a submission that got through without learning it: its sbatch was killed, or a full disk kept
    the journal from noting it. That job, if it lives."""
    if not unfinished_retry.is_left(run) and not _is_lost(run):
        return None
    refuse_foreign_run(run)
    with run_lock(run):  # which settles the claim of one that is dead
        if not _is_lost(run):
            return None
        token, job, _ = earlier(run)
        from slurmopt.slurm.submit import look_up, sought

        lost_job = job or look_up(sought(run.script, token or ""), time.monotonic() + _PATIENCE)
        if lost_job is None:
            return None
        note_job(run, read_journal(run).backend or "sbatch", token, lost_job, **in_cluster())
    ((status, *_), _) = gather([run], fresh=True)
    return lost_job if status.alive else None


def _is_lost(run: RunFolder) -> bool:
    """Whether nobody has noted what became of the latest submission to Slurm."""
    token, _, noted = earlier(run)
    return token is not None and not noted and not read_journal(run).local


def broken_off_with_job(run: RunFolder) -> Unfinished | None:
    """The retry that broke off after Slurm had its job; None where none did."""
    token, job, _ = earlier(run)
    broken_off = unfinished_retry.found(run)
    return broken_off if broken_off is not None and job is not None and token != broken_off.token else None


def end_broken_off(run: RunFolder) -> None:
    """A retry that broke off after Slurm had its job has done all that it was to do."""
    with run_lock(run):
        unfinished_retry.end(run)


def _refuse_alive(run: RunFolder, who: str) -> None:
    ((status, *_), problem) = gather([run], fresh=True)
    if status.alive:
        why = f" ({status.detail})" if status.detail else ""
        raise RunError(f"{who}{status.label} is {status.state}{why}; first: slurmopt cancel {status.label}")
    if status.state == "unknown":
        reason = status.detail or problem or "it is not known whether it is alive"
        raise RunError(f"{who}{status.label} may be alive: {reason}")
    if not status.journal.local and not run.in_sweep:
        _refuse_another_job(status.journal, who)


def _refuse_another_job(journal: Journal, who: str) -> None:
    """A job of the run that its journal does not tell of, or calls ended although it waits to start."""
    from slurmopt.slurm.queue import queue

    if _another_job(journal, queue()) and (other := _another_job(journal, queue(fresh=True))):  # it may just have ended
        run = journal.folder
        raise RunError(f"{who}job {other[0]} of {run.name}/{run.id} is {other[1].lower()}; first: scancel {other[0]}")


def _another_job(journal: Journal, jobs: Mapping[str, QueueEntry]) -> tuple[str, str] | None:
    """Its id and state."""
    for job, entry in jobs.items():
        is_its = entry.runs(str(journal.folder.script)) or bool(journal.token and journal.token in entry.comment)
        if is_its and not is_over(entry.state) and (job not in journal.jobs or entry.state == "PENDING"):
            return job, entry.state
    return None


@contextlib.contextmanager
def going_on(plan: Plan, script: str, latest: tuple[str | None, str | None]) -> Iterator[None]:
    """Notes in the journal of an existing run that it goes on, its config and script changed where `plan` says so.

    RunError where another was quicker: `latest` is the token and the job of its latest submission. What was changed is
    put back where Slurm did not take the job.
    """
    run = plan.job.folder
    if latest != plan.after:
        raise RunError(f"another launch of {run.name}/{run.id} was quicker; see: slurmopt status {run.name}/{run.id}")
    if plan.changes is not None:
        unfinished_retry.begin(run, latest[0], (run.config, run.script, run.supervisor), repeated=plan.repeated)
    else:
        unfinished_retry.end(run)  # config and script stay as a retry that broke off has left them
    try:
        if plan.changes is not None:
            _change(plan, script)
        events.append(run.events, "retry", changes=plan.changes or {})
        yield
    except (SubmissionUnknown, SubmissionNotNoted):
        raise  # Slurm has the job, or may have it
    except Exception:
        if (broken_off := unfinished_retry.found(run)) is not None:
            with contextlib.suppress(OSError):  # the disk is still full: the next retry does it
                unfinished_retry.undo(run, broken_off)
        raise
    unfinished_retry.end(run)


def undo_broken_off(run: RunFolder, none_in_slurm: bool) -> None:
    """Undoes what a retry has changed that broke off before Slurm had its job. `none_in_slurm`: whether Slurm was asked
    for a job of which the journal does not know whether there is one."""
    if unfinished_retry.found(run) is None:
        return
    with run_lock(run):
        token, job, _ = earlier(run)
        broken_off = unfinished_retry.found(run)
        if broken_off is None:
            return
        if token in (None, broken_off.token) or (job is None and none_in_slurm):
            unfinished_retry.undo(run, broken_off)


def _change(plan: Plan, script: str) -> None:
    from slurmopt.grid.yaml_dump import dump_stored

    run = plan.job.folder
    if plan.job.settings.task.python is not None:
        link_package(run)
    replace_text(run.config, dump_stored(plan.stored))
    supervisor_file.write(run, supervisor())
    replace_text(run.script, script)
