"""Processes as /proc shows them, and files of folders that trainings delete from meanwhile."""

from __future__ import annotations

import glob
from pathlib import Path


def children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def group_lives(group: int) -> bool:
    """Whether a process group has a process that has not ended."""
    for path in glob.iglob("/proc/[0-9]*/stat"):
        try:
            state, _, its_group = Path(path).read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_group) == group and state not in "ZX":
            return True
    return False


def found(root: Path, pattern: str) -> list[Path]:
    """As `sorted(root.glob(pattern))`, which raises FileNotFoundError where a folder goes while it is looked at."""
    return sorted(Path(path) for path in glob.glob(f"{glob.escape(str(root))}/{pattern}"))


def content(path: Path) -> bytes:
    """Of a file that may have been deleted since it was listed: then nothing."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
