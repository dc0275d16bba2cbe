"""Checks the node apart from its GPUs: free disk space, and the clock."""

from __future__ import annotations

import os
import time
from pathlib import Path

from slurmopt.checks.result import CheckResult, NotChecked, failed
from slurmopt.run_folder.variables import Unset, fill
from slurmopt.storage.filesystem.mounts import read_mounts
from slurmopt.storage.filesystem.usage import nearest_folder, usage_of
from slurmopt.units import human_bytes


def space(folder: str, least: int, key: str, shared: bool) -> CheckResult | None:
    """Checks that `least` bytes are free where `folder` is or will be made. If it is `shared`, no node is at fault and
    the problem may pass, as other users may free space; a node's own disk mostly stays full."""
    path = _there(folder, key)
    try:
        usage = usage_of(path)
    except PermissionError as error:
        raise NotChecked(f"the space of {path} is not known: {error.strerror}") from None
    except OSError as error:
        return failed("file system", f"{path} does not work: {error.strerror}", passing=shared)
    if usage.is_read_only:
        return failed("file system", f"{path} is mounted read-only")
    if usage.bytes == 0:
        raise NotChecked(f"the space of {path} is not known: its file system reports none")
    free = usage.free_bytes
    if free >= least:
        return None
    text = f"{path} has {human_bytes(free)} free, less than {human_bytes(least)} ({key}; {key}=null skips this check)"
    return failed("file system", text, () if shared else None, passing=shared)


def mounted(folder: str, key: str) -> CheckResult | None:
    """Checks that the `folder` of a checkpoint tier outlives the container: it must not lie in the container's own
    root."""
    path = _there(folder, key).resolve()
    # Not by the device: the image of a container may be unpacked on the disk whose folder is mounted in it.
    points = {mount.point for mount in read_mounts()}
    if any(place in points for place in (path, *path.parents) if place != Path("/")):
        return None
    return failed("file system", f"{folder} is in the container's own root and gone at its end: mount it ({key})", ())


def _there(folder: str, key: str) -> Path:
    """The folder, or its nearest parent that exists."""
    try:
        path = Path(fill(folder, os.environ)).expanduser()
    except Unset as error:
        raise NotChecked(f"{key}: {folder!r} needs the environment variable {error}, which this rank lacks") from None
    except RuntimeError as error:  # no home
        raise NotChecked(f"{key}: {error}") from None
    return nearest_folder(path)


def clock(path: Path, most: float) -> CheckResult | None:
    """Checks that this node's clock differs by at most `most` seconds from that of the file system, which sets the time
    of `path`.

    A file system that uses the client's time (Lustre, a local disk) shows no difference.
    """
    before = time.time()
    try:
        os.utime(path)
        stamp = path.stat().st_mtime
    except OSError as error:
        raise NotChecked(f"the clock is not compared with the file system's: {error.strerror}") from None
    after = time.time()
    ahead, behind = before - stamp, stamp - after
    if max(ahead, behind) <= most:
        return None
    off = f"{ahead:.0f} s ahead of" if ahead > behind else f"{behind:.0f} s behind"
    return failed("file system", f"its clock is {off} the file system's, more than {most:g} s (health.clock)")
