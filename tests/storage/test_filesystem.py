"""Facts of real file systems: this machine's own, and an ext4 on a loop device with quotas and without access times."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmopt.checks.in_thread import within
from slurmopt.checks.result import CheckResult
from slurmopt.checks.side_by_side import checked
from slurmopt.storage.filesystem.checks import mount_checks, quota_check, usage_checks
from slurmopt.storage.filesystem.mounts import Mount, mount_of, read_mounts
from slurmopt.storage.filesystem.quota import Quota, _DiskQuota, quota_of
from slurmopt.storage.filesystem.usage import Usage, usage_of
from slurmopt.storage.inspection import inspect

SETQUOTA = 0x800008 << 8
QIF_LIMITS = 5
USER = 12345
GIB = 1 << 30


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Path]:
    """A real ext4 of 64 MiB, without access times."""
    yield from mounted(tmp_path, [], "loop,noatime", "no loop device can be mounted here")


@pytest.fixture
def with_quotas(tmp_path: Path) -> Iterator[Path]:
    """The same, which keeps quotas of users."""
    yield from mounted(tmp_path, ["-O", "quota"], "loop,usrquota", "this kernel keeps no quotas on ext4 (QFMT_V2)")


def mounted(folder: Path, features: list[str], options: str, why: str) -> Iterator[Path]:
    if os.geteuid():
        pytest.skip("NOT TESTED: a loop device needs root")
    image, point = folder / "image", folder / "disk"
    point.mkdir()
    with open(image, "wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", *features, image], check=True)
    if subprocess.run(["mount", "-o", options, image, point], stderr=subprocess.DEVNULL).returncode:
        pytest.skip(f"NOT TESTED: {why}")
    try:
        yield point
    finally:
        subprocess.run(["umount", point], check=True)


def limit(mount: Mount, blocks: int, inodes: int) -> None:
    """What setquota(8) does."""
    wanted = _DiskQuota(hard_blocks=blocks, hard_inodes=inodes, valid=QIF_LIMITS)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.quotactl(SETQUOTA, os.fsencode(mount.source), USER, ctypes.byref(wanted)) == 0


def verdicts(results: list[CheckResult]) -> dict[str, str]:
    return {result.name: result.verdict for result in results}


def test_the_machine_agrees_with_findmnt(tmp_path: Path) -> None:
    mount = mount_of(tmp_path / "not" / "yet")
    assert mount is not None
    words = ["findmnt", "-n", "-o", "FSTYPE,SOURCE", "-T", str(tmp_path)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.split() == [
        mount.kind,
        mount.source,
    ]
    usage = usage_of(tmp_path)
    assert 0 < usage.free_bytes < usage.bytes
    assert verdicts(inspect(tmp_path))["file system"] == "pass"


def test_the_options_of_a_real_mount(loop: Path) -> None:
    mount = mount_of(loop / "x")
    assert mount is not None
    assert (mount.kind, mount.point) == ("ext4", loop)
    assert {"noatime", "rw"} <= {*mount.options}
    results = verdicts(inspect(loop))
    assert (results["atime"], results["access"], results["space"], results["quota"]) == ("pass",) * 4
    assert quota_of(mount) is None


def test_a_quota_that_the_kernel_keeps(with_quotas: Path) -> None:
    mount = mount_of(with_quotas)
    assert mount is not None
    limit(mount, blocks=10 * 1024, inodes=100)
    for number in range(3):
        (with_quotas / f"{number}").write_bytes(bytes(2 << 20))
        os.chown(with_quotas / f"{number}", USER, -1)
    os.sync()
    quota = quota_of(mount, USER)
    assert quota is not None
    assert (quota.bytes, quota.hard_bytes, quota.soft_bytes) == (6 << 20, 10 << 20, None)
    assert (quota.inodes, quota.inodes_left, quota.bytes_left) == (3, 97, 4 << 20)
    assert quota_check(quota).text == "user 12345: 6.0 MiB in 3 files, 4.0 MiB left of 10.0 MiB, 97 files left of 100"


def test_a_file_system_that_is_read_only(loop: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", loop], check=True)
    results = {result.name: result for result in inspect(loop)}
    assert results["access"].verdict == "fail"
    assert results["access"].mend == f"ask the administrator: mount -o remount,rw {loop}"
    assert usage_of(loop).is_read_only


def test_a_later_mount_hides_the_earlier_one_and_blanks_are_read() -> None:
    table = (
        "a / ext4 rw 0 0\nb /my\\040data xfs rw,noatime 0 0\nc /my\\040data tmpfs rw 0 0\nd /my\x85data nfs4 rw 0 0\n"
    )
    found = mount_of("/my data/x", table)
    assert found == Mount("c", Path("/my data"), "tmpfs", ("rw",))
    assert len(read_mounts(table)) == 4
    assert mount_of("/x", "") is None


@pytest.mark.parametrize(
    ("kind", "options", "name", "verdict"),
    [
        ("ext4", "rw", "atime", "warn"),
        ("ext4", "rw,relatime", "atime", "pass"),
        ("xfs", "ro,noatime", "access", "fail"),
        ("lustre", "rw,flock", "flock", "pass"),
        ("lustre", "rw,localflock", "flock", "warn"),
        ("lustre", "rw", "flock", "warn"),
        ("nfs4", "rw,soft,timeo=10", "outages", "warn"),
        ("nfs4", "rw,hard", "outages", "pass"),
        ("nfs", "rw,hard,nolock", "outages", "warn"),
        ("tmpfs", "rw", "shared", "warn"),
    ],
)
def test_options_of_a_mount(kind: str, options: str, name: str, verdict: str) -> None:
    results = {one.name: one for one in mount_checks(Mount("dev", Path("/a b"), kind, tuple(options.split(","))))}
    assert results[name].verdict == verdict
    assert (results[name].mend is None) == (verdict == "pass")


@pytest.mark.parametrize(
    ("free", "inodes", "expected"),
    [
        (50, 50, {"space": "pass", "inodes": "pass"}),
        (5, 50, {"space": "warn", "inodes": "pass"}),
        (1, 1, {"space": "fail", "inodes": "fail"}),
    ],
)
def test_space_and_inodes(free: int, inodes: int, expected: dict[str, str]) -> None:
    assert verdicts(usage_checks("/x", Usage(100 * GIB, free * GIB, 100, inodes, False))) == expected
    assert verdicts(usage_checks("/x", Usage(0, 0, 0, 0, False))) == {"space": "skipped", "inodes": "skipped"}


def test_a_quota_that_is_used_up() -> None:
    assert quota_check(Quota("user 1", 10 * GIB, None, 10 * GIB, 5, None, None)).verdict == "fail"
    assert quota_check(Quota("user 1", 10 * GIB, 9 * GIB, 20 * GIB, 5, None, None)).verdict == "fail"
    assert quota_check(Quota("user 1", 5, None, None, 95, None, 100)).verdict == "warn"
    assert quota_check(Quota("user 1", 5, None, None, 5, None, None)).text == "user 1: 5 B in 5 files, no limit"


def test_a_call_that_never_returns_hides_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "dead")

    def hangs() -> list[CheckResult]:
        (tmp_path / "dead").read_bytes()
        return []

    (result,) = checked("space", 0.2, hangs)
    assert (result.verdict, result.text) == ("skipped", "not known: no answer within 0.2 s")
    with pytest.raises(FileNotFoundError):
        within(30, (tmp_path / "gone").stat)
    with open(tmp_path / "dead", "wb"):  # the thread may end
        pass
