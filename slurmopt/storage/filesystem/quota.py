"""The user's quota on a local file system, from the kernel: quotactl(2). `storage/lustre/commands.py` has Lustre's."""

from __future__ import annotations

import ctypes
import errno
import os
from dataclasses import dataclass

from slurmopt.storage.filesystem.mounts import Mount

_GETQUOTA = 0x800007 << 8
"""QCMD(Q_GETQUOTA, USRQUOTA), in <sys/quota.h>."""
_BLOCK = 1024
"""Bytes: the unit of block limits, whatever the file system's block size is."""


@dataclass(frozen=True)
class Quota:
    """What one user has and may have. Limits are None where there is none; `of` names whose it is."""

    of: str
    bytes: int
    soft_bytes: int | None
    hard_bytes: int | None
    inodes: int
    soft_inodes: int | None
    hard_inodes: int | None

    @property
    def bytes_left(self) -> int | None:
        """Bytes until the lower of both limits; None where there is none."""
        return _left(self.bytes, self.soft_bytes, self.hard_bytes)

    @property
    def inodes_left(self) -> int | None:
        """Files until the lower of both limits; None where there is none."""
        return _left(self.inodes, self.soft_inodes, self.hard_inodes)


def _left(used: int, *limits: int | None) -> int | None:
    given = [limit for limit in limits if limit is not None]
    return max(0, min(given) - used) if given else None


class _DiskQuota(ctypes.Structure):
    """struct dqblk of <sys/quota.h>."""

    _fields_ = (
        ("hard_blocks", ctypes.c_uint64),
        ("soft_blocks", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("hard_inodes", ctypes.c_uint64),
        ("soft_inodes", ctypes.c_uint64),
        ("inodes", ctypes.c_uint64),
        ("block_grace", ctypes.c_uint64),
        ("inode_grace", ctypes.c_uint64),
        ("valid", ctypes.c_uint32),
    )


def quota_of(mount: Mount, uid: int | None = None) -> Quota | None:
    """The quota of this user (or of `uid`) on the device of `mount`; None where none is enforced or kept.

    Raises OSError where the kernel refuses to tell.
    """
    if not mount.source.startswith("/dev/"):
        return None
    user = os.getuid() if uid is None else uid
    found = _DiskQuota()
    libc = ctypes.CDLL(None, use_errno=True)
    status = libc.quotactl(_GETQUOTA, os.fsencode(mount.source), user, ctypes.byref(found))
    if status:
        number = ctypes.get_errno()
        # No quota is kept; a kernel without quotas; a mount whose device is not visible here, as in a container.
        if number in (errno.ESRCH, errno.ENOSYS, errno.ENOENT, errno.ENOTBLK, errno.ENODEV, errno.EOPNOTSUPP):
            return None
        raise OSError(number, os.strerror(number))
    return Quota(
        f"user {user}",
        found.bytes,
        found.soft_blocks * _BLOCK or None,
        found.hard_blocks * _BLOCK or None,
        found.inodes,
        found.soft_inodes or None,
        found.hard_inodes or None,
    )
