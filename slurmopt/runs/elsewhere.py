"""Finds this user's own runs in the folders that `slurmopt.runs.index` knows."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from slurmopt.errors import RunError, RunNotFound, one_line
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.all_runs import all_folders
from slurmopt.runs.index import known_folders
from slurmopt.runs.ownership import owner_of
from slurmopt.slow_notice import slow_notice

_Found = TypeVar("_Found")


def other_folders(folder: Path) -> list[Path]:
    """The known folders other than `folder`, newest first."""
    here = os.path.realpath(folder)
    return [known for known in known_folders() if os.path.realpath(known) != here]


def first_own(folder: Path, look: Callable[[Path], _Found], run_of: Callable[[_Found], RunFolder]) -> _Found | None:
    """What `look` finds in the newest of the other folders in which it finds one of this user's own; None if in none.

    Prints where that is. `run_of`: the run or sweep of what was found. Raises what `look` does, except RunNotFound.
    """
    for other in other_folders(folder):
        if not os.access(other, os.R_OK | os.X_OK):
            continue
        with slow_notice(f"looking for it in {one_line(str(other))}"):
            try:
                found = look(other)
            except RunNotFound:
                continue
            run = run_of(found)
            is_own = owner_of(run) is None
        if is_own:
            print(f"slurmopt: {one_line(f'{run.name}/{run.id} is in {other}')}", file=sys.stderr)
            return found
    return None


def own_folders() -> list[RunFolder]:
    """The folders of this user's own runs and sweeps in all known folders."""
    found = {}
    for folder in known_folders():
        with slow_notice(f"looking at {one_line(str(folder))}"), contextlib.suppress(RunError):
            found.update({run.path: run for run in all_folders(folder) if owner_of(run) is None})
    return list(found.values())
