"""Reads the mount table: which mount holds a path, and with which options."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

TABLE = Path("/proc/self/mounts")
_NODE_LOCAL = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "ramfs", "overlay", "f2fs", "squashfs", "vfat", "devtmpfs"}
)


@dataclass(frozen=True)
class Mount:
    """One line of the mount table."""

    source: str
    """The device, or the server: /dev/nvme0n1, 10.0.1.5@tcp:/abcd."""
    point: Path
    kind: str
    """The type: ext4, lustre, nfs4."""
    options: tuple[str, ...]
    """Those of the mount and of the file system."""

    @property
    def is_node_local(self) -> bool:
        """Whether only this node sees its files, as far as the type tells."""
        return self.kind in _NODE_LOCAL


def read_mounts(table: str | None = None) -> list[Mount]:
    """All mounts, in their order. `table`: text as in /proc/self/mounts, the default."""
    mounts = []
    for line in (_read() if table is None else table).split("\n"):
        words = [_unescaped(word) for word in line.split(" ")]
        if len(words) >= 3:
            options = tuple(words[3].split(",")) if len(words) > 3 else ()
            mounts.append(Mount(words[0], Path(words[1]), words[2], options))
    return mounts


def mount_of(path: str | os.PathLike[str], table: str | None = None) -> Mount | None:
    """The mount that holds `path`, which need not exist yet; links are followed. None without a mount table."""
    resolved = Path(os.path.realpath(path))
    found: Mount | None = None
    for mount in read_mounts(table):
        # >=: a later mount on the same point hides the earlier one.
        if resolved.is_relative_to(mount.point) and (found is None or len(mount.point.parts) >= len(found.point.parts)):
            found = mount
    return found


def _read() -> str:
    try:
        return TABLE.read_text(errors="surrogateescape")
    except OSError:  # without /proc this is not Linux
        return ""


def _unescaped(word: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), word)
