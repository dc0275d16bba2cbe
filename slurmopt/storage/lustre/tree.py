"""Walks a folder tree without following links, and stays on its file system."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from stat import S_ISDIR, S_ISREG


@dataclass(frozen=True)
class Entry:
    """A regular file or folder. `blocks`: 512-byte blocks that it takes here."""

    path: str
    bytes: int
    blocks: int
    is_folder: bool


def walk(root: str) -> Iterator[Entry]:
    """Each regular file and folder below `root`, and `root` itself, folders before their content. Links and what
    vanishes meanwhile are left out; a folder that cannot be read raises PermissionError."""
    device = os.lstat(root).st_dev
    pending = [root]
    while pending:
        path = pending.pop()
        try:
            facts = os.lstat(path)
        except FileNotFoundError:
            continue
        if facts.st_dev != device:
            continue
        if S_ISREG(facts.st_mode):
            yield Entry(path, facts.st_size, facts.st_blocks, False)
        elif S_ISDIR(facts.st_mode):
            yield Entry(path, 0, 0, True)
            pending += reversed(_names(path))


def _names(folder: str) -> list[str]:
    # Not followed, should someone put a link in place of the folder between the two calls.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        return sorted(os.path.join(folder, name) for name in os.listdir(descriptor))
    except FileNotFoundError:
        return []
    finally:
        os.close(descriptor)
