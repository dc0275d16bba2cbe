"""Brings one orphaned run back: submits it again, or notes in its journal how it ended."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from slurmopt import command_output
from slurmopt.errors import RunError, one_line
from slurmopt.restart import causes
from slurmopt.run_folder import events
from slurmopt.run_folder.json_values import as_int
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import journal as journals
from slurmopt.runs.journal import returns
from slurmopt.runs.ownership import config_of, refuse_foreign_run
from slurmopt.runs.recovery.action import Action, action_on
from slurmopt.runs.recovery.orphans import Orphan, may_be_orphan
from slurmopt.runs.submit import unfinished_retry
from slurmopt.runs.submit.exactly_once import locked, note_job
from slurmopt.slurm.cluster.facts import in_cluster

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings


def planned_action(orphan: Orphan) -> Action:
    """What `bring_back` would do; changes nothing."""
    from slurmopt.config.composition.settings import load
    from slurmopt.runs.recovery.missing_end import late_end

    refuse_foreign_run(orphan.run)
    _refuse_other_cluster(orphan)
    if orphan.submitted is not None:
        return action_on(orphan, "noted", job=orphan.submitted)
    if _is_cancelled(orphan):
        return action_on(orphan, "cancelled")
    end = orphan.end or late_end(orphan, load(config_of(orphan.run))[1])
    return action_on(orphan, "submitted" if returns(end) else "ended", end)


def bring_back(orphan: Orphan) -> Action | None:
    """Does what the run needs. None where another process holds the run or has changed it meanwhile."""
    from slurmopt.config.composition.settings import load

    refuse_foreign_run(orphan.run)
    _refuse_other_cluster(orphan)
    _, settings = load(config_of(orphan.run))
    with locked(orphan.run, patience=0) as is_locked:
        journal = journals.read(orphan.run)
        if not is_locked or not may_be_orphan(journal) or journal.latest != orphan.journal.latest:
            return None
        if orphan.submitted is not None:
            return _note_job(orphan, orphan.submitted, settings)
        return _note_cancel(orphan, settings) if _is_cancelled(orphan) else _submit(orphan, settings)


def _refuse_other_cluster(orphan: Orphan) -> None:
    if orphan.cluster is not None:
        raise RunError(f"its job {orphan.journal.job} is one of cluster {orphan.cluster}; tend it there")


def _is_cancelled(orphan: Orphan) -> bool:
    return causes.of_state(orphan.state or "") == causes.CANCELLED


def _note_job(orphan: Orphan, job: str, settings: Settings) -> Action:
    """Notes the job of a submission that broke off after Slurm had accepted it."""
    note_job(orphan.run, orphan.journal.backend or "sbatch", orphan.journal.token, job, **in_cluster())
    unfinished_retry.end(orphan.run)  # if it was a retry's submission, the retry is complete now
    if orphan.end is not None:
        _notify(orphan.run, orphan.end, settings)
    return action_on(orphan, "noted", job=job)


def _note_cancel(orphan: Orphan, settings: Settings) -> Action:
    """Notes a cancel by scancel, so that the run still counts as cancelled when Slurm has forgotten the job."""
    events.append(orphan.run.events, "cancel", job=orphan.journal.job, by="tend")
    end = write_end(orphan, settings) if orphan.journal.attempt and orphan.end is None else None
    if end is not None:
        _notify(orphan.run, end, settings)
    return action_on(orphan, "cancelled", end)


def _submit(orphan: Orphan, settings: Settings) -> Action | None:
    from slurmopt.runs.recovery.resubmit import submit_again

    end = orphan.end or write_end(orphan, settings)
    if end is None:
        return None
    job = submit_again(orphan.run, orphan.journal.backend or "sbatch", settings) if returns(end) else None
    _notify(orphan.run, end, settings)
    return action_on(orphan, "submitted" if job else "ended", end, job=job)


def write_end(orphan: Orphan, settings: Settings) -> dict[str, Any] | None:
    """Appends the `end` event that the latest attempt did not write, and returns it; None where an attempt has just
    started."""
    from slurmopt.runs.recovery.missing_end import claim, late_end

    end = late_end(orphan, settings)
    if orphan.journal.attempt is None and not claim(orphan.run, end["attempt"]):
        return None
    events.append(orphan.run.events, "end", **end)
    return end


def _notify(run: RunFolder, end: dict[str, Any], settings: Settings) -> None:
    hooks = settings.notify.to_json_arg()
    if hooks is None:
        return
    from slurmopt.notify.tell import Hooks, tell

    for line in tell(run, as_int(end.get("attempt")) or 0, Hooks.from_json(hooks), os.environ):
        command_output.warn(f"{one_line(f'{run.name}/{run.id}')}: {line}")
