"""The layout of a checkpoint folder on Lustre.

There is no Lustre here: its mount table and `lfs` are SIMULATED by a text and a shell script on PATH that answers as
real ones do. What is real is the negative: no folder of this machine is on Lustre.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmopt.storage.lustre import commands, layout, on_lustre, stripe

MIB, GIB = 1024**2, 1024**3
MOUNTS = """\
proc /proc proc rw,relatime 0 0
/dev/nvme0n1 / ext4 rw,relatime 0 0
10.0.1.5@tcp:/abcd /fsx lustre rw,checksum,flock,lazystatfs 0 0
/dev/nvme1n1 /fsx/scratch xfs rw 0 0
10.0.1.5@tcp:/abcd /my\\040data lustre rw 0 0
nodev /late lustre rw 0 0
tmpfs /late tmpfs rw 0 0
"""
DF = """\
UUID                   1K-blocks        Used   Available Use% Mounted on
abcd-MDT0000_UUID       41699840        3840    41693952   1% /fsx[MDT:0]
{osts}abcd-OST00ff_UUID : inactive device

filesystem_summary:    198745088     9206784   189534208   5% /fsx
"""
OST = "abcd-OST{n:04x}_UUID       98706432     5615616    93088768   6% /fsx[OST:{n}]\n"


@pytest.fixture
def simulated_lfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts an `lfs` first on PATH; gives the file in which it notes each call, one a line."""

    def put(osts: int = 8, setstripe: str = "exit 0", df_status: int = 0) -> Path:
        programs, calls, df = tmp_path / "bin", tmp_path / "calls", tmp_path / "df"
        programs.mkdir()
        df.write_text(DF.format(osts="".join(OST.format(n=n) for n in range(osts))))
        program = programs / "lfs"
        program.write_text(
            f'#!/bin/sh\necho "$*" >> "{calls}"\n'
            f'case $1 in df) cat "{df}"; exit {df_status};; setstripe) {setstripe};; esac\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        return calls

    return put


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "step-00000120"
    path.mkdir()
    return path


@pytest.fixture
def mounts(tmp_path: Path) -> str:
    """A simulated mount table in which the test's own folder is on Lustre."""
    point = os.path.realpath(tmp_path).replace(" ", "\\040")
    return f"/dev/nvme0n1 / ext4 rw 0 0\n10.0.1.5@tcp:/abcd {point} lustre rw 0 0\n"


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/fsx/runs/1", True),
        ("/fsx", True),
        ("/fsx/scratch/tmp", False),
        ("/fsxy/runs", False),
        ("/home/me", False),
        ("/my data/runs", True),
        ("/late/runs", False),
    ],
)
def test_the_mount_that_holds_a_path_decides(path: str, answer: bool) -> None:
    assert on_lustre(path, MOUNTS) is answer


def test_a_link_counts_for_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "runs").symlink_to("/fsx/runs")
    assert on_lustre(tmp_path / "runs" / "new", MOUNTS)


def test_this_machine_has_no_lustre(tmp_path: Path, simulated_lfs: Callable[..., Path]) -> None:
    calls = simulated_lfs()
    assert not on_lustre(tmp_path)
    assert stripe(tmp_path, 10 * GIB, 1) is None
    assert not calls.exists(), "lfs was called for a folder that is not on Lustre"


@pytest.mark.parametrize(
    ("file_bytes", "files", "osts", "options"),
    [
        (1000, 1, 32, "-c 1"),
        (100 * MIB, 1, 32, "-c 1"),
        (600 * MIB, 1, 32, "-E 100M -c 1 -E -1 -c 4"),
        (8 * GIB, 1, 32, "-E 100M -c 1 -E 1G -c 4 -E -1 -c 8"),
        (50 * GIB, 1, 32, "-E 100M -c 1 -E 1G -c 4 -E 10G -c 8 -E -1 -c 16"),
        (500 * GIB, 1, 64, "-E 100M -c 1 -E 1G -c 4 -E 10G -c 8 -E 100G -c 16 -E -1 -c 32"),
        (8 * GIB, 8, 32, "-E 100M -c 1 -E -1 -c 4"),  # 32 OSTs / 8 ranks
        (500 * GIB, 8, 48, "-E 100M -c 1 -E 1G -c 4 -E -1 -c 6"),
        (500 * GIB, 256, 32, "-c 1"),  # more ranks than OSTs
        (500 * GIB, 1, 1, "-c 1"),
        (0, 0, 0, "-c 1"),
    ],
)
def test_the_layout_fits_size_and_count(file_bytes: int, files: int, osts: int, options: str) -> None:
    assert " ".join(layout(file_bytes, files, osts)) == options


def test_the_folder_gets_its_layout(simulated_lfs: Callable[..., Path], folder: Path, mounts: str) -> None:
    calls = simulated_lfs(osts=8)
    line = stripe(folder, 600 * MIB, 4, mounts=mounts)
    assert line == (
        f"Lustre: {os.path.realpath(folder)} has the layout -E 100M -c 1 -E -1 -c 2 for 4 files of 600.0 MiB on 8 OSTs"
    )
    assert calls.read_text().splitlines()[-1] == f"setstripe -E 100M -c 1 -E -1 -c 2 {os.path.realpath(folder)}"


def test_an_inactive_ost_neither_counts_nor_fails(
    simulated_lfs: Callable[..., Path], folder: Path, mounts: str
) -> None:
    simulated_lfs(osts=2, df_status=1)
    line = stripe(folder, GIB, 1, mounts=mounts)
    assert line is not None
    assert line.endswith("-E 100M -c 1 -E -1 -c 2 for 1 file of 1.0 GiB on 2 OSTs")


@pytest.mark.parametrize(
    ("lfs", "said"),
    [
        (
            {"setstripe": "echo 'error: setstripe: Permission denied' >&2; exit 1"},
            "lfs setstripe -c 1 failed: error: setstripe: Permission denied",
        ),
        ({"setstripe": "exit 25"}, "lfs setstripe -c 1 failed: exit status 25"),
        ({"setstripe": "printf 'two\\nlines\\033[31m\\n' >&2; exit 1"}, r"failed: lines\x1b[31m"),
        ({"setstripe": "printf '\\377' >&2; exit 1"}, "failed: �"),
        ({"osts": 0}, "lfs df names no OST: exit status 0"),
    ],
)
def test_what_lfs_refuses_is_one_line(
    simulated_lfs: Callable[..., Path], folder: Path, mounts: str, lfs: dict[str, str | int], said: str
) -> None:
    simulated_lfs(**lfs)
    line = stripe(folder, 1000, 1, mounts=mounts)
    assert line is not None
    assert line.startswith(f"Lustre: {os.path.realpath(folder)} keeps the layout that it inherits: ")
    assert line.endswith(said)
    assert "\n" not in line


def test_an_lfs_that_hangs_is_given_up(
    simulated_lfs: Callable[..., Path], folder: Path, mounts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated_lfs(setstripe="exec sleep 600")
    monkeypatch.setattr(commands, "TIMEOUT", 2.0)
    line = stripe(folder, 1000, 1, mounts=mounts)
    assert line is not None
    # On a busy machine already `lfs df` may take that long.
    assert line.endswith("did not answer within 2 s")


def test_without_lfs_the_line_names_it(folder: Path, mounts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    line = stripe(folder, 1000, 1, mounts=mounts)
    assert line is not None
    assert line.endswith("lfs, which Lustre's client package brings, is not installed here")


def test_an_lfs_that_cannot_start_is_one_line(
    simulated_lfs: Callable[..., Path], folder: Path, mounts: str, tmp_path: Path
) -> None:
    simulated_lfs()
    (tmp_path / "bin" / "lfs").write_bytes(b"\x7fnot a program")
    line = stripe(folder, 1000, 1, mounts=mounts)
    assert line is not None
    assert line.endswith("lfs cannot be started: Exec format error")
