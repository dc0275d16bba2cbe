"""Limits and permissions of a rank's open files: how many there may be, and who may write to its log."""

from __future__ import annotations

import contextlib
import os
import resource
import stat

_ENOUGH = 65_536
"""File descriptors: many times what a rank of a large job needs. Some programs close every descriptor up to their
limit when they start, which takes minutes where the hard limit is in the millions."""


def limit() -> int:
    """The soft limit on open files of this process."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_limit() -> None:
    """Raises the soft limit on open files to the hard limit, 65,536 at most.

    Slurm gives a job the soft limits of the shell that submitted it, as a rule 1,024. A rank of a large job needs more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with contextlib.suppress(OSError, ValueError):  # refused by a security module: the limit stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def close_logs_to_others() -> None:
    """Removes the write permission of group and others from standard output and error, if they are files of this user.
    Slurm and shells create them by the umask, which belongs to the training."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # closed, or a file system without modes
            facts = os.fstat(descriptor)
            if stat.S_ISREG(facts.st_mode) and facts.st_mode & 0o022 and facts.st_uid == os.geteuid():
                os.fchmod(descriptor, stat.S_IMODE(facts.st_mode) & ~0o022)
