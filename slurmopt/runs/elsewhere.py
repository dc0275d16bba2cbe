"""Finds this user's own runs in the folders that `slurmopt.runs.index` knows."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from slurmopt.errors import RunError, RunNotFound, one_line
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.all_runs import all_folders
from slurmopt.runs.index import known_folders
from slurmopt.runs.ownership import owner_of
from slurmopt.slow_notice import slow_notice

if TYPE_CHECKING:
    from slurmopt.runs.find import Selection

    Found = RunFolder | Selection


def other_folders(folder: Path) -> list[Path]:
    """The known folders other than `folder`, newest first."""
    here = os.path.realpath(folder)
    return [known for known in known_folders() if os.path.realpath(known) != here]


def select_elsewhere(name: str | None, folder: Path, select: Callable[[str, Path], Found]) -> Found | None:
    """What `select` finds for `name` in the newest of the other folders that has it, if it is this user's own.

    Prints where that is. None where no folder has it, and for a run without a name. RunError where the name is
    ambiguous.
    """
    if not name:
        return None
    for other in other_folders(folder):
        with slow_notice(f"looking for it in {one_line(str(other))}"):
            found = _own(name, other, select)
        if found is not None:
            print(f"slurmopt: {_label(found)} is in {one_line(str(other))}", file=sys.stderr)
            return found
    return None


def _own(name: str, folder: Path, select: Callable[[str, Path], Found]) -> Found | None:
    if not os.access(folder, os.R_OK | os.X_OK):
        return None
    try:
        found = select(name, folder)
    except RunNotFound:
        return None
    run = found if isinstance(found, RunFolder) else found.sweep.run
    return found if owner_of(run) is None else None


def _label(found: Found) -> str:
    return one_line(f"{found.name}/{found.id}") if isinstance(found, RunFolder) else found.label


def own_folders() -> list[RunFolder]:
    """The folders of this user's own runs and sweeps in all known folders."""
    found = {}
    for folder in known_folders():
        with slow_notice(f"looking at {one_line(str(folder))}"), contextlib.suppress(RunError):
            found.update({run.path: run for run in all_folders(folder) if owner_of(run) is None})
    return list(found.values())
