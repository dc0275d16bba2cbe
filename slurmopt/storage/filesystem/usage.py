"""Space and inodes of the file system that holds a path."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """Bytes and inodes; totals of 0 where the file system does not count them, as btrfs does with inodes."""

    bytes: int
    free_bytes: int
    """What this user can still write; root's reserve is not in it."""
    inodes: int
    free_inodes: int
    is_read_only: bool


def usage_of(path: str | os.PathLike[str]) -> Usage:
    """The usage at `path`, which must exist. Raises OSError."""
    stat = os.statvfs(path)
    return Usage(
        stat.f_blocks * stat.f_frsize,
        stat.f_bavail * stat.f_frsize,
        stat.f_files,
        stat.f_favail,
        bool(stat.f_flag & os.ST_RDONLY),
    )


def nearest_folder(path: Path) -> Path:
    """`path`, or its nearest parent that exists; a folder that may not be entered hides what is below it."""
    return next((place for place in (path, *path.parents) if os.path.exists(place)), Path("/"))
