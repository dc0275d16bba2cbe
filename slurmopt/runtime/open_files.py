"""How many files and connections a rank may have open."""

from __future__ import annotations

import contextlib
import resource

_ENOUGH = 65_536
"""File descriptors: many times what a rank of a large job needs. Some programs close every descriptor up to their
limit when they start, which takes minutes where the hard limit is in the millions."""


def limit() -> int:
    """How many files this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_limit() -> None:
    """Raises the soft limit on open files to the hard limit, 65,536 at most.

    Slurm gives a job the soft limits of the shell that submitted it, as a rule 1,024. A rank of a large job needs more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # refused by a security module: the limit stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
