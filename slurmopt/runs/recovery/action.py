"""What `slurmopt tend` did with a run, and why it left another one alone."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from slurmopt.errors import one_line
from slurmopt.run_folder.json_values import as_int, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.find import Selection
from slurmopt.runs.options import run_arg
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.recovery.orphans import Orphan, is_unfinished
from slurmopt.runs.status.query import Status, gather


@dataclass
class Action:
    """One thing that `slurmopt tend` did or, with `--dry-run`, would do."""

    name: str
    id: str
    folder: str
    did: str
    job: str | None = None
    attempt: int | None = None
    cause: str | None = None
    reason: str | None = None
    error: str | None = None

    @property
    def is_problem(self) -> bool:
        """Whether somebody has to look at it."""
        return self.did in ("failed", "not noted")

    def line(self, dry_run: bool) -> str:
        """The line that `slurmopt tend` prints."""
        attempt = f" (attempt {self.attempt}: {self.cause})" if self.attempt is not None and self.cause else ""
        lines = {
            "noted": f"was submitted before as job {self.job}; that {'would be' if dry_run else 'is'} noted now",
            "not noted": f"{self.error}; the next tend notes it",
            "submitted": f"would be submitted again{attempt}"
            if dry_run
            else f"submitted again as job {self.job}{attempt}",
            "ended": f"has ended{attempt}: {self.reason}",
            "cancelled": "was cancelled with scancel, so it is not restarted",
            "failed": f"not brought back: {self.error}",
        }
        return one_line(f"{self.name}/{self.id}: {lines[self.did]}")


def action_on(orphan: Orphan, did: str, end: dict[str, Any] | None = None, **fields: Any) -> Action:
    """What was done with `orphan`. `end`: the `end` event of the attempt before."""
    event = end or {}
    return Action(
        orphan.run.name,
        orphan.run.id,
        str(orphan.run.path),
        did,
        attempt=as_int(event.get("attempt")),
        cause=text(event.get("cause")),
        reason=text(event.get("reason")),
        **fields,
    )


def left_alone(selected: Iterable[RunFolder | Selection], folders: Collection[str]) -> Iterator[str]:
    """For each of the `selected` runs and sweeps that has no action, says why, and what to do instead. `folders`: those
    of the actions."""
    selected = list(dict.fromkeys(selected))
    runs = [item for item in selected if isinstance(item, RunFolder) and str(item.path) not in folders]
    if runs:
        yield from map(_why_not, gather(runs)[0])
    for item in selected:
        if isinstance(item, Selection) and not any(_is_in(folder, item.sweep) for folder in folders):
            yield _why_not_sweep(item)


def _is_in(folder: str, sweep: SweepFolder) -> bool:
    return folder == str(sweep.path) or folder.startswith(f"{sweep.path}{os.sep}")


def _why_not_sweep(selection: Selection) -> str:
    if (owner := owner_of(selection.sweep.run)) is not None:
        return f"{selection.label} belongs to another user ({one_line(owner)}); only that user can tend it"
    name = run_arg(selection.sweep.run, f"{selection.sweep.name}/{selection.sweep.id}")
    return (
        f"{selection.label}: nothing is to be done; see: slurmopt status {name}; for what failed: slurmopt retry {name}"
    )


def _why_not(status: Status) -> str:
    run = run_arg(status.folder, status.label)
    prefix = one_line(f"{status.label} is {status.state}")
    if status.owner is not None:
        return f"{prefix}; it belongs to another user ({one_line(status.owner)}); only that user can tend it"
    if status.alive and status.journal.local:
        return f"{prefix}; the local backend's own process restarts it"
    if status.alive:
        return f"{prefix}: nothing is to be done yet"
    if status.state in ("finished", "unsubmitted", "unknown"):
        return f"{prefix}: nothing is to be done; see: slurmopt status {run}"
    if not status.journal.local and is_unfinished(status.journal):
        return f"{prefix}: Slurm may still bring it back itself; repeat slurmopt tend {run} in a minute"
    return f"{prefix} and stays so; to let it go on: slurmopt retry {run}"
