"""Verdicts on the mount options, space, inodes and quota of a file system. Pure: facts in, results out."""

from __future__ import annotations

import shlex

from slurmopt.checks.result import CheckResult
from slurmopt.storage.filesystem.mounts import Mount
from slurmopt.storage.filesystem.quota import Quota
from slurmopt.storage.filesystem.usage import Usage
from slurmopt.units import human_bytes

_LITTLE, _VERY_LITTLE = 0.10, 0.02
"""Shares of a file system. Below a tenth most of them become slow; some stop at 2 %."""
_NO_TIMES = ("noatime", "relatime", "lazytime", "nodiratime")


def mount_checks(mount: Mount) -> list[CheckResult]:
    """The type, and options that matter to a training: ro, atime, flock, soft."""
    where = f"{mount.kind} from {mount.source}, mounted at {mount.point}"
    results = [CheckResult("file system", "pass", where), _access(mount), _atime(mount)]
    if mount.kind == "lustre":
        results.append(_flock(mount))
    if mount.kind.startswith("nfs"):
        results.append(_nfs(mount))
    if mount.is_node_local:
        results.append(_node_local(mount))
    return results


def usage_checks(path: str, usage: Usage) -> list[CheckResult]:
    """Space and inodes."""
    return [
        _share("space", path, usage.free_bytes, usage.bytes, human_bytes, f"du -xh --max-depth=1 {shlex.quote(path)}"),
        _share("inodes", path, usage.free_inodes, usage.inodes, "{:,}".format, "remove or archive small files"),
    ]


def quota_check(quota: Quota | None) -> CheckResult:
    """The limits of the user, and what is left."""
    if quota is None:
        return CheckResult("quota", "pass", "no quota is kept for this user")
    parts = [f"{human_bytes(quota.bytes)} in {quota.inodes:,} files"]
    if quota.bytes_left is not None:
        parts.append(f"{human_bytes(quota.bytes_left)} left of {human_bytes(quota.bytes + quota.bytes_left)}")
    if quota.inodes_left is not None:
        parts.append(f"{quota.inodes_left:,} files left of {quota.inodes + quota.inodes_left:,}")
    text = f"{quota.of}: {', '.join(parts)}" + ("" if len(parts) > 1 else ", no limit")
    shares = [
        left / (used + left) if left else 0.0
        for used, left in ((quota.bytes, quota.bytes_left), (quota.inodes, quota.inodes_left))
        if left is not None
    ]
    least = min(shares, default=1.0)
    if least >= _LITTLE:
        return CheckResult("quota", "pass", text)
    mend = "remove files, or ask the administrator for a larger quota"
    return CheckResult("quota", "fail" if least <= _VERY_LITTLE else "warn", text, mend)


def _share(name: str, path: str, free: int, total: int, shown: object, mend: str) -> CheckResult:
    if total == 0:
        return CheckResult(name, "skipped", f"the file system of {path} does not count it")
    assert callable(shown)
    share = free / total
    text = f"{shown(free)} of {shown(total)} free ({100 * share:.0f} %)"
    if share >= _LITTLE:
        return CheckResult(name, "pass", text)
    return CheckResult(name, "fail" if share <= _VERY_LITTLE else "warn", text, mend)


def _access(mount: Mount) -> CheckResult:
    if "ro" in mount.options:
        mend = f"ask the administrator: mount -o remount,rw {shlex.quote(str(mount.point))}"
        return CheckResult("access", "fail", "mounted read-only", mend)
    return CheckResult("access", "pass", "mounted for reading and writing")


def _atime(mount: Mount) -> CheckResult:
    found = next((option for option in _NO_TIMES if option in mount.options), None)
    # Lustre updates access times lazily, within the file's own lock; its table names no option then.
    if found is not None or mount.kind in ("tmpfs", "overlay") or mount.kind.startswith(("lustre", "nfs")):
        text = f"{found}: reads write no access time" if found else "not an option that costs anything here"
        if found == "relatime":
            text = "relatime: a read writes the access time once a day at most"
        return CheckResult("atime", "pass", text)
    mend = f"ask the administrator: mount -o remount,noatime {shlex.quote(str(mount.point))}"
    return CheckResult("atime", "warn", "every read of a file writes its access time", mend)


def _flock(mount: Mount) -> CheckResult:
    if "flock" in mount.options:
        return CheckResult("flock", "pass", "file locks hold on all nodes")
    point = shlex.quote(str(mount.point))
    mend = f"ask the administrator: umount {point} && mount -t lustre -o flock {shlex.quote(mount.source)} {point}"
    if "localflock" in mount.options:
        return CheckResult("flock", "warn", "localflock: a file lock is not seen by other nodes", mend)
    return CheckResult("flock", "warn", "noflock: programs that lock files fail (HDF5, SQLite, caches)", mend)


def _nfs(mount: Mount) -> CheckResult:
    if "soft" in mount.options or "softerr" in mount.options:
        mend = f"ask the administrator to mount {mount.point} with hard"
        return CheckResult("outages", "warn", "soft: writes are lost when the server is away for a while", mend)
    if "nolock" in mount.options or "local_lock=all" in mount.options:
        mend = f"ask the administrator to mount {mount.point} without nolock"
        return CheckResult("outages", "warn", "nolock: a file lock is not seen by other nodes", mend)
    return CheckResult("outages", "pass", "hard: calls wait until the server is back")


def _node_local(mount: Mount) -> CheckResult:
    text = f"{mount.kind} is seen by this node alone, unless it is exported"
    if mount.kind in ("tmpfs", "ramfs"):
        text = f"{mount.kind}: the files take the memory of this node, and are gone after a reboot"
    mend = "for a run on several nodes, put run folder and checkpoints on a shared file system"
    return CheckResult("shared", "warn", text, mend)
