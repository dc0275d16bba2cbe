"""Checks of what a process on this machine may use: locked memory, open files, shared memory."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

from slurmopt.checks.result import FAIL, PASS, WARN, CheckResult, NotChecked
from slurmopt.units import human_bytes

_FILES = 4096
_SHARED_MEMORY = 1 << 30
"""Bytes. NCCL takes some MiB for each pair of ranks, a DataLoader whole batches for each worker."""


def locked_memory(has_rdma: bool) -> Iterator[CheckResult]:
    """RDMA pins memory: with a limit, NCCL fails when it registers its buffers."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        yield CheckResult("locked memory", PASS, "unlimited")
        return
    text = f"limited to {human_bytes(soft)}" + ("; RDMA devices need it unlimited" if has_rdma else "")
    mend = "slurmd's unit: LimitMEMLOCK=infinity, and slurm.conf: PropagateResourceLimitsExcept=MEMLOCK"
    yield CheckResult("locked memory", FAIL if has_rdma else PASS, text, mend if has_rdma else None)


def open_files() -> Iterator[CheckResult]:
    """The hard limit; slurmopt raises the soft one up to it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= _FILES:
        shown = "unlimited" if hard == resource.RLIM_INFINITY else f"{hard:,}"
        yield CheckResult("open files", PASS, f"hard limit {shown}")
    else:
        text = f"hard limit {hard:,}: a job of many ranks and data workers needs more"
        yield CheckResult("open files", WARN, text, "slurmd's unit: LimitNOFILE=1048576")


def shared_memory(folder: str = "/dev/shm") -> Iterator[CheckResult]:  # noqa: S108 - its size alone is asked
    """The size of /dev/shm, through which the ranks of a node and the workers of a DataLoader exchange data."""
    try:
        usage = os.statvfs(folder)
    except FileNotFoundError as error:
        raise NotChecked(f"there is no {folder}") from error
    size = usage.f_blocks * usage.f_frsize
    if size < _SHARED_MEMORY:
        text = f"{folder} has {human_bytes(size)}: NCCL and DataLoader workers fail with 'bus error' when it is full"
        mend = f"mount -o remount,size=50% {folder}; in a container: --shm-size=8g or --ipc=host"
        yield CheckResult("shared memory", WARN, text, mend)
    else:
        yield CheckResult("shared memory", PASS, f"{folder} has {human_bytes(size)}")
