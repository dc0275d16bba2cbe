"""The memory of a process, where what it shares with others counts in parts."""

from __future__ import annotations

from slurmopt.kernel_files import text


def proportional(pid: int | str, proc: str = "/proc") -> int | None:
    """The proportional set size (PSS) in bytes: a page that N processes map counts 1/N. None where the kernel does not
    tell: the process has ended, belongs to another user, or the kernel is older than 4.14."""
    for line in (text(f"{proc}/{pid}/smaps_rollup") or "").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return None
