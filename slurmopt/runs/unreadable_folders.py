"""Recognizes folders that this user may not read, so that their runs are not reported as missing."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from slurmopt.errors import RunError, one_line
from slurmopt.run_folder.access.owner import is_own
from slurmopt.runs.ownership import name_of


def closed_folder(path: Path) -> Path | None:
    """The first folder on the path to `path`, itself included, that this user may not enter. None where there is none,
    or `path` does not exist."""
    for folder in (*reversed(path.parents), path):
        try:
            os.stat(os.path.join(folder, "."))  # needs permission to enter the folder
        except PermissionError:
            return folder
        except OSError:
            return None
    return None


def permission_denied(folder: Path) -> str:
    """The message on a folder that this user may not read: whose it is, and who can open it."""
    facts = folder.lstat()
    mode, shown = stat.S_IMODE(facts.st_mode), one_line(str(folder))
    if is_own(facts, folder.parent):
        return f"permission denied: {shown} is yours and closed (mode {mode:o}); chmod u+rx {shlex.quote(shown)}"
    owner = name_of(facts.st_uid)
    return (
        f"permission denied: {shown} belongs to another user ({owner}, mode {mode:o}), who can open it to their group"
    )


def refuse_unreadable(name: str | None, paths: list[Path], folder: Path) -> None:
    """RunError where `name`, or one of the `paths` that it may mean, is a run in `folder` that this user may not read.
    Where `name` is None, for any such run."""
    for path in paths:
        if (closed := closed_folder(path)) is not None:
            raise RunError(permission_denied(closed))
    for run in _closed_runs(folder.absolute()):
        if name is None or name in (run.parent.name, run.name):
            raise RunError(permission_denied(closed_folder(run) or run))


def _closed_runs(base: Path) -> Iterator[Path]:
    """The folders runs/NAME and runs/NAME/ID that this user may not enter."""
    for place in _folders(base):
        if closed_folder(place) is not None:
            yield place
        yield from (run for run in _folders(place) if closed_folder(run) is not None)


def _folders(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return [
                path / entry.name
                for entry in entries
                if entry.is_dir() and not entry.name.startswith((".", "lost+found"))
            ]
    except OSError:
        return []
