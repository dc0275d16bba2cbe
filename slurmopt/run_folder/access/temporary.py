"""Names of temporary files that are renamed once complete; removes those whose process was killed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import time
from pathlib import Path

from slurmopt.run_folder.process import short_machine

_OLD = 86400.0
"""Seconds after which a temporary file is abandoned, whatever its process is."""
_NAME = re.compile(r"\..+\.(?P<machine>[0-9a-f]{12})-(?P<pid>[0-9]{1,7})-[0-9a-f]{8}", re.DOTALL)


def temporary_name(path: Path) -> Path:
    """A hidden, unpredictable name in the folder of `path` that contains an identifier of this process."""
    return path.with_name(f".{path.name}.{short_machine()}-{os.getpid()}-{os.urandom(4).hex()}")


def drafts(folder: Path) -> Path:
    """The folder in which this user's launches make run folders before they are moved to `folder`, runs/NAME. It exists
    while a launch does so; what a killed launch left is found without listing all runs."""
    return folder / f".drafts-{os.geteuid()}"


def clear(folder: Path) -> None:
    """Removes from `folder` the temporary files of this user's processes that were killed while writing: processes of
    this machine that have ended, and files older than a day of other machines. Errors are ignored."""
    for path, mode in _abandoned(folder):
        if not stat.S_ISDIR(mode):
            with contextlib.suppress(OSError):
                path.unlink()


def clear_drafts(folder: Path) -> None:
    """The same for run folders that killed launches left incomplete in `folder`, runs/NAME."""
    place = drafts(folder)
    for path, mode in _abandoned(place):
        # One that was submitted is no draft, whoever gave it such a name.
        if stat.S_ISDIR(mode) and not os.path.lexists(path / ".submission"):
            shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        place.rmdir()


def _abandoned(folder: Path) -> list[tuple[Path, int]]:
    """The abandoned temporary files of this user in `folder`, with their modes."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    abandoned = []
    for name in names:
        if (match := _NAME.fullmatch(name)) is not None:
            with contextlib.suppress(OSError):
                facts = (folder / name).lstat()
                is_dead = match["machine"] == short_machine() and not _lives(int(match["pid"]))
                if facts.st_uid == os.geteuid() and (is_dead or time.time() - facts.st_mtime > _OLD):
                    abandoned.append((folder / name, facts.st_mode))
    return abandoned


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
