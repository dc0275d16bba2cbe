"""All verdicts on the file system that holds a path. Each part has a deadline, and none hides the others."""

from __future__ import annotations

import os
import shlex
from functools import partial
from pathlib import Path

from slurmopt.checks.result import CheckResult
from slurmopt.checks.side_by_side import checked
from slurmopt.storage.filesystem.checks import mount_checks, quota_check, usage_checks
from slurmopt.storage.filesystem.mounts import Mount, mount_of
from slurmopt.storage.filesystem.quota import quota_of
from slurmopt.storage.filesystem.usage import usage_of
from slurmopt.storage.lustre import checks as lustre
from slurmopt.storage.lustre.commands import LustreError, user_quota

_SECONDS = 10.0
"""For a call on the file system itself; those of lfs have deadlines of their own."""
_LFS_SECONDS = 40.0


def inspect(path: Path) -> list[CheckResult]:
    """What the file system of `path`, which exists, is and has."""
    mount = mount_of(path)
    if mount is None:
        return [CheckResult("file system", "skipped", "this system has no mount table in /proc")]
    results = mount_checks(mount)
    results += checked("space", _SECONDS, lambda: [_writable(path), *usage_checks(str(path), usage_of(path))])
    if mount.kind != "lustre":
        return [*results, *checked("quota", _SECONDS, lambda: [_quota(mount)])]
    word = str(path)
    for name, check in (
        ("quota", lambda: [lustre.lustre_quota_check(word)]),
        ("OSTs", lambda: lustre.target_checks(word)),
        ("layout", lambda: [lustre.layout_check(word)]),
        ("client settings", partial(lustre.client_checks, _cores(), _memory())),
    ):
        results += checked(name, _LFS_SECONDS, check)
    return results


def bytes_left_by_quota(path: Path) -> int | None:
    """Bytes that this user's quota leaves at `path`; None where there is no limit, or nobody tells of it."""
    mount = mount_of(path)
    try:
        if mount is None:
            return None
        quota = user_quota(str(path), os.getuid()) if mount.kind == "lustre" else quota_of(mount)
    except (LustreError, OSError):
        return None
    return None if quota is None else quota.bytes_left


def _quota(mount: Mount) -> CheckResult:
    if mount.kind.startswith("nfs"):
        return CheckResult("quota", "skipped", "NFS tells it to rpc.rquotad alone", "quota -s")
    return quota_check(quota_of(mount))


def _writable(path: Path) -> CheckResult:
    if os.access(path, os.W_OK):
        return CheckResult("permission", "pass", "this user may write there")
    return CheckResult(
        "permission", "warn", "this user may not write there", f"ls -ld {shlex.quote(str(path))}; ask its owner"
    )


def _cores() -> int:
    return os.cpu_count() or 1


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
