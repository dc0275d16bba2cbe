"""Finds the owner of a file, and who may write to it, as its file system shows that.

Some show another user, or other modes, than they were asked for: an EFS access point with a user of its own, mounts of
SMB, NFS with another table of users, root where the server squashes it. A file that this process makes there tells.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from slurmopt.run_folder.access.temporary import temporary_name

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_shown: dict[int, os.stat_result] = {}
"""Device → what its file system showed of a file of this user's that was made with mode 600."""


def is_own(facts: os.stat_result, folder: Path) -> bool:
    """Whether the file with these `facts` in `folder` belongs to this user. If the user ids differ, a file is made in
    `folder` to find out which user id the file system shows for this user's files."""
    if facts.st_uid == os.geteuid():
        return True
    shown = _probe(folder)
    return shown is not None and shown.st_uid == facts.st_uid


def is_trusted(facts: os.stat_result, folder: Path) -> bool:
    """Whether the file belongs to this user or to root, who can act as any user anyway."""
    return facts.st_uid == 0 or is_own(facts, folder)


def belongs(path: Path, facts: os.stat_result, folder: Path) -> bool:
    """Whether `path` is this user's: a run's or sweep's `folder`, or what lies in it, which may be root's too."""
    return is_own(facts, folder) if path == folder else is_trusted(facts, folder)


def is_open(facts: os.stat_result, folder: Path) -> bool:
    """Whether others may write to what `facts` tell of, in `folder`; False where the file system has no modes."""
    return bool(facts.st_mode & OTHERS_WRITE) and keeps_modes(folder)


def keeps_modes(folder: Path) -> bool:
    """Whether files in `folder` get the modes that are requested; also True if that cannot be tried."""
    shown = _probe(folder)
    return shown is None or not shown.st_mode & 0o077


def _probe(folder: Path) -> os.stat_result | None:
    """The facts of a new file, read through its descriptor, so that nobody can replace it meanwhile."""
    try:
        device = folder.stat().st_dev
        if device in _shown:
            return _shown[device]
        path = temporary_name(folder / "owner")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        return _shown.setdefault(device, os.fstat(descriptor))
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)
