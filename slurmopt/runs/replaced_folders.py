"""Refuses run folders that somebody has replaced while this process holds them open."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from slurmopt.errors import RunError, one_line
from slurmopt.run_folder.access.open_folders import is_swapped, owner_of_held, place_of_held
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.ownership import name_of

_OF_LAUNCHES = 3
"""How many components of a path the launch makes: runs/NAME/ID."""
MOST = 64
"""Folders that `--watch` holds open at most: each takes a file descriptor."""


def refuse_swapped(run: RunFolder, jobs: Sequence[str | None] | None = None) -> None:
    """RunError where the run's or its sweep's folder, which this process holds open, was replaced.

    `jobs`: the run's jobs, as known before; None: it was about to be submitted.
    """
    if is_swapped(run.top):
        raise RunError(_swapped(run, None if jobs is None else [*filter(None, jobs)]))


def remarks(watched: Iterable[tuple[RunFolder, Sequence[str | None]]]) -> str:
    """The same message for each of the `watched` runs with their jobs, as paragraphs below the page."""
    messages = {run.top: _swapped(run, [*filter(None, jobs)]) for run, jobs in watched if is_swapped(run.top)}
    return "".join(f"\n\n{text}" for text in messages.values())


def _swapped(run: RunFolder, jobs: Sequence[str] | None) -> str:
    current_path = place_of_held(run.top)
    advice = f"put it back from {one_line(str(current_path))}" if current_path is not None else "put it back"
    label = one_line(f"{run.top.parent.name}/{run.top.name}")
    prefix = f"{label}: {one_line(str(run.top))} is no longer the folder that the launch made; {_whose(run.top)}"
    if jobs is None:
        return f"{prefix}: nothing of it is used, and nothing was submitted; {advice}, and repeat the command"
    if not jobs:
        return f"{prefix}: nothing of it is shown; {advice}"
    subject, end = jobs_and_end(jobs)
    return f"{prefix}: nothing of it is shown; {subject} may go on: {advice}, or end {subject} with `{end}`"


def _whose(place: Path) -> str:
    """Which component of the path belongs to another user: the last of those that a launch makes."""
    own_ids = (0, owner_of_held(place))
    for path in (place, *place.parents[: _OF_LAUNCHES - 1]):
        if os.path.lexists(path) and (uid := path.lstat().st_uid) not in own_ids:
            kind = "a link" if path.is_symlink() else "what is there now"
            subject = kind if path == place else f"{kind} at {one_line(str(path))}"
            return f"{subject} belongs to another user ({name_of(uid)})"
    return "somebody has put something else there"


def jobs_and_end(jobs: Sequence[str]) -> tuple[str, str]:
    """The jobs as a phrase, and the command that ends them."""
    local = [job.removeprefix("local-") for job in jobs]
    command = "kill" if local != list(jobs) else "scancel"
    return f"job{'s' if len(jobs) > 1 else ''} {', '.join(jobs)}", f"{command} {' '.join(local)}"
