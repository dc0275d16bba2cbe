"""Caches Slurm's answers for a short time for all commands of one user: small JSON files in a private folder.

Nothing here is worth an error: without a writable home Slurm is simply asked each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slurmopt.run_folder.access.file_lock import held
from slurmopt.run_folder.access.temporary import clear, temporary_name

_FORMAT = "1"
"""Part of each file's name. Increased when the stored format changes."""


def place(name: str) -> Path | None:
    """The file for `name` of this user and cluster; None if there is no private folder for it."""
    try:
        folder = _base() / "slurmopt"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except (OSError, RuntimeError):  # RuntimeError: a user without a home
        return None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        return None
    return folder / f"{name}-{_cluster_key()}.json"


def _base() -> Path:
    configured = os.environ.get("XDG_CACHE_HOME", "")
    return Path(configured) if os.path.isabs(configured) else Path.home() / ".cache"


def _cluster_key() -> str:
    names = ("SLURM_CONF", "SLURM_CLUSTERS")
    text = "\0".join([_FORMAT, str(os.geteuid()), *(os.environ.get(name, "") for name in names)])
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]


def read(name: str, max_age: float) -> tuple[Any, float] | None:
    """The value stored under `name` and its age in seconds; None if there is none, or it is too old or of another
    user."""
    path = place(name)
    if path is None:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, encoding="utf-8") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                return None
            stored = json.load(file)
        value, age = stored["value"], time.time() - float(stored["time"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (value, age) if 0 <= age < max_age else None


def write(name: str, value: Any, asked_at: float) -> None:
    """Stores `value` with the time of asking. A home folder that cannot be written is no error."""
    path = place(name)
    if path is None:
        return
    clear(path.parent)
    temporary = temporary_name(path)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
            json.dump({"time": asked_at, "value": value}, file)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()


@contextlib.contextmanager
def lock(name: str, seconds: float) -> Iterator[bool]:
    """Holds the lock of `name`. Yields False if another process has held it for `seconds`.

    Yields True on a file system without locks: asking Slurm twice is better than not at all.
    """
    path = place(name)
    try:
        if path is None:
            raise OSError("no folder")
        descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        yield True
        return
    try:
        yield held(descriptor, time.monotonic() + seconds, 0.02) is not False
    finally:
        os.close(descriptor)
