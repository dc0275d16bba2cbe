"""Which files an attempt exposes to Prometheus, noted in the run folder: what a kill leaves there is removed later."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from pathlib import Path

from slurmopt.run_folder.access.files import read_json, replace_json
from slurmopt.run_folder.json_values import text
from slurmopt.run_folder.layout import RunFolder

_PATH = "path"
_FILE = re.compile(r"(?P<name>slurmopt-.+-\d{1,3})\.(?:prom|json)")
_LONGEST = 1 << 20


def note_exposed(folder: RunFolder, attempt: int, path: Path) -> None:
    """Notes that the attempt exposes the file at `path`."""
    with contextlib.suppress(OSError):  # the disk is full: the user's next job on the node removes the file
        replace_json(folder.exposed(attempt, path.name), {_PATH: str(path)})


def remove_exposed(folder: RunFolder, attempt: int) -> None:
    """Removes the files of an attempt that has ended, as far as they can be reached from this node."""
    for note in folder.all_exposed(attempt):
        with contextlib.suppress(OSError):  # a live process holds it, or it is out of reach
            path = text((read_json(note) or {}).get(_PATH))
            if path is not None:
                _remove_of_run(Path(path), f"{folder.name}/{folder.id}")


def remove_unheld(path: Path, lock: Path) -> None:
    """Removes a file if no process holds its lock. Raises OSError."""
    descriptor = locked(lock)
    try:
        path.unlink()
    finally:
        os.close(descriptor)


def locked(path: Path, more: int = 0) -> int:
    """A descriptor that holds the lock. Raises OSError, also if another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | more, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_of_run(path: Path, run: str) -> None:
    """Removes a file of a run, NAME/ID, whose process has ended. Another job may have taken the slot meanwhile: on this
    node it holds the lock, on others, where locks may not reach, its file names another run. Raises OSError."""
    match = _FILE.fullmatch(path.name)
    if match is not None and os.path.lexists(path) and f'"{run}"' in _own_text(path):
        remove_unheld(path, path.parent / f".{match['name']}.lock")


def _own_text(path: Path) -> str:
    """What this user wrote there; "" for anything else. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        is_own = stat.S_ISREG(facts.st_mode) and facts.st_uid == os.getuid()
        return file.read(_LONGEST).decode(errors="replace") if is_own else ""
