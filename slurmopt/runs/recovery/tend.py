"""Finds the orphaned ones among runs and brings them back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from slurmopt.errors import SlurmoptError, SubmissionNotNoted, with_place
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.ownership import is_mine
from slurmopt.runs.recovery.action import Action, action_on
from slurmopt.runs.recovery.bring_back import bring_back, planned_action
from slurmopt.runs.recovery.orphans import find_orphans
from slurmopt.runs.submit.exactly_once import locked
from slurmopt.runs.submit.lock_file import is_left


def tend(runs: list[RunFolder], dry_run: bool = False) -> Iterator[Action]:
    """Brings back the orphans among `runs`. Raises SlurmError where Slurm cannot be asked for their state."""
    orphans = find_orphans(runs)
    if orphans:  # asked again: a requeue may have overtaken the cached answer
        orphans = find_orphans([orphan.run for orphan in orphans], fresh=True)
    for orphan in orphans:
        try:
            action = planned_action(orphan) if dry_run else bring_back(orphan)
        except (SlurmoptError, OSError) as error:
            did = "not noted" if isinstance(error, SubmissionNotNoted) else "failed"
            action = action_on(orphan, did, error=with_place(error))
        except Exception as error:  # noqa: BLE001 - unexpected contents of one run's files must not stop the others
            action = action_on(orphan, "failed", error=f"{type(error).__name__}: {error}")
        if action is not None:
            yield action
    if not dry_run:
        _remove_dead_claims(runs)


def _remove_dead_claims(runs: list[RunFolder]) -> None:
    """Removes the claims of tends and launches that were killed; those of live processes stay. A claim that cannot be
    removed is no error: the next process that claims the run removes it."""
    for run in runs:
        with contextlib.suppress(SlurmoptError, OSError):
            if is_left(run.submitter) and is_mine(run):
                with locked(run, patience=0):
                    pass
