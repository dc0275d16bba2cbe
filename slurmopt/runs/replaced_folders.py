"""What is said where somebody has put something else in the place of a folder that a launch, or who watches, holds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from slurmopt.errors import RunError, one_line
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.open_folders import is_swapped, owner_of_held, place_of_held
from slurmopt.runs.ownership import name_of

_OF_LAUNCHES = 3
"""The last names of runs/NAME/ID."""
MOST = 64
"""Folders that are held while many are watched: each costs a descriptor."""


def refuse_swapped(run: RunFolder, jobs: Sequence[str | None] | None = None) -> None:
    """RunError where something else is in the place of the run's folder, or its sweep's, which this process holds.

    `jobs`: those that Slurm or this machine has of it, as was known before; None: it was just about to be submitted."""
    if is_swapped(run.top):
        raise RunError(_swapped(run, None if jobs is None else [*filter(None, jobs)]))


def remarks(watched: Iterable[tuple[RunFolder, Sequence[str | None]]]) -> str:
    """The same of many runs with their jobs: below what is shown of them, a paragraph each."""
    gone = {run.top: _swapped(run, [*filter(None, jobs)]) for run, jobs in watched if is_swapped(run.top)}
    return "".join(f"\n\n{text}" for text in gone.values())


def _swapped(run: RunFolder, jobs: Sequence[str] | None) -> str:
    now = place_of_held(run.top)
    back = f"put it back from {one_line(str(now))}" if now is not None else "put it back"
    label = one_line(f"{run.top.parent.name}/{run.top.name}")
    here = f"{label}: {one_line(str(run.top))} is no longer the folder that the launch made; {_whose(run.top)}"
    if jobs is None:
        return f"{here}: nothing of it is used, and nothing was submitted; {back}, and repeat the command"
    if not jobs:
        return f"{here}: nothing of it is shown; {back}"
    what, end = _jobs(jobs)
    return f"{here}: nothing of it is shown; {what} may go on: {back}, or end {what} with `{end}`"


def _whose(place: Path) -> str:
    """Of the names that a launch makes the last that is somebody else's."""
    mine = (0, owner_of_held(place))
    for path in (place, *place.parents[: _OF_LAUNCHES - 1]):
        if os.path.lexists(path) and (uid := path.lstat().st_uid) not in mine:
            kind = "a link" if path.is_symlink() else "what is there now"
            which = kind if path == place else f"{kind} at {one_line(str(path))}"
            return f"{which} belongs to another user ({name_of(uid)})"
    return "somebody has put something else there"


def _jobs(jobs: Sequence[str]) -> tuple[str, str]:
    """What they are called, and what ends them."""
    local = [job.removeprefix("local-") for job in jobs]
    command = "kill" if local != list(jobs) else "scancel"
    return f"job{'s' if len(jobs) > 1 else ''} {', '.join(jobs)}", f"{command} {' '.join(local)}"
