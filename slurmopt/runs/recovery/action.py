"""What a tend has done, or would do, with one run."""

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
from slurmopt.runs.options import word_for
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.recovery.orphans import Orphan, goes_on
from slurmopt.runs.status.query import Status, gather


@dataclass
class Action:
    """One thing that was done, or would be."""

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
        """Whether somebody has to see to it."""
        return self.did in ("failed", "not noted")

    def line(self, dry_run: bool) -> str:
        """It, for people."""
        after = f" (attempt {self.attempt}: {self.cause})" if self.attempt is not None and self.cause else ""
        said = {
            "noted": f"was submitted before as job {self.job}; that {'would be' if dry_run else 'is'} noted now",
            "not noted": f"{self.error}; the next tend notes it",
            "submitted": f"would be submitted again{after}" if dry_run else f"submitted again as job {self.job}{after}",
            "ended": f"has ended{after}: {self.reason}",
            "cancelled": "was cancelled with scancel: that is final",
            "failed": f"not brought back: {self.error}",
        }
        return one_line(f"{self.name}/{self.id}: {said[self.did]}")


def deed_of(stray: Orphan, did: str, end: dict[str, Any] | None = None, **fields: Any) -> Action:
    """What was done with `stray`; `end` is of the attempt that it came after."""
    of_end = end or {}
    return Action(
        stray.run.name,
        stray.run.id,
        str(stray.run.path),
        did,
        attempt=as_int(of_end.get("attempt")),
        cause=text(of_end.get("cause")),
        reason=text(of_end.get("reason")),
        **fields,
    )


def left_alone(found: Iterable[RunFolder | Selection], done: Collection[str]) -> Iterator[str]:
    """Of each run or sweep that was named, and with which nothing was done, why, and what works instead. `done`:
    folders."""
    found = list(dict.fromkeys(found))
    runs = [one for one in found if isinstance(one, RunFolder) and str(one.path) not in done]
    if runs:
        yield from map(_why_not, gather(runs)[0])
    for one in found:
        if isinstance(one, Selection) and not any(_is_in(folder, one.sweep) for folder in done):
            yield _why_not_sweep(one)


def _is_in(folder: str, sweep: SweepFolder) -> bool:
    return folder == str(sweep.path) or folder.startswith(f"{sweep.path}{os.sep}")


def _why_not_sweep(one: Selection) -> str:
    if (owner := owner_of(one.sweep.run)) is not None:
        return f"{one.label} belongs to another user ({one_line(owner)}), who alone can tend it"
    word = word_for(one.sweep.run, f"{one.sweep.name}/{one.sweep.id}")
    return f"{one.label}: nothing is to be done; see: slurmopt status {word}; for what failed: slurmopt retry {word}"


def _why_not(status: Status) -> str:
    run = word_for(status.folder, status.label)
    said = one_line(f"{status.label} is {status.state}")
    if status.owner is not None:
        return f"{said}; it belongs to another user ({one_line(status.owner)}), who alone can tend it"
    if status.alive and status.journal.local:
        return f"{said}; the local backend's own process looks after it"
    if status.alive:
        return f"{said}: nothing is to be done yet"
    if status.state in ("finished", "unsubmitted", "unknown"):
        return f"{said}: nothing is to be done; see: slurmopt status {run}"
    if not status.journal.local and goes_on(status.journal):
        return f"{said}: Slurm may still bring it back itself; repeat slurmopt tend {run} in a minute"
    return f"{said} and stays so; to let it go on: slurmopt retry {run}"
