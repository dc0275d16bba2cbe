"""`slurmopt doctor PLACE`: folders that runs will use. tests/storage has those of buckets."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from private_cluster import unprivileged_user

from slurmopt.cli import main
from slurmopt.run_folder.process import module_words


@pytest.fixture
def found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """What the doctor finds that is not a pass, or has the name `only`."""

    def ask(*words: str, status: int, only: str = "") -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(["doctor", "--json", "--folder", str(tmp_path), *words]) == status
        return [each for each in data_of(capsys.readouterr().out) if each["verdict"] != "pass" or each["name"] == only]

    return ask


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("gs://bucket/x", "storage at gs:// is not known"),
        ("s3://a", "'s3://a' is not a place in S3; write s3://BUCKET"),
        ("/no/such", "/no/such: no such folder"),
        ("/dev/null", "/dev/null is no folder"),
        ("/tmp/" + 300 * "x", "file name too long"),
    ],
)
def test_a_place_that_is_none_hides_no_other(
    word: str, said: str, tmp_path: Path, found: Callable[..., list[dict[str, Any]]]
) -> None:
    results = found(word, str(tmp_path), status=1, only="clock")
    assert [said in each["text"] for each in results if each["verdict"] == "fail"] == [True]
    assert len([each for each in results if each["name"] == "clock"]) == 2  # of the folder of runs, and of the other


def test_an_endpoint_belongs_to_a_bucket(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "/tmp", "--endpoint", "http://localhost"]) == 2
    assert "--endpoint belongs to a bucket; give s3://BUCKET/PREFIX" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: becoming another user needs root")
def test_a_place_that_the_user_may_not_enter_fails(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o011)
    words = [sys.executable, *module_words("slurmopt"), "doctor", str(closed), "--json", "--folder", "/tmp"]
    done = subprocess.run(words, user=unprivileged_user(), cwd="/", capture_output=True, text=True)
    (failure,) = [each for each in data_of(done.stdout) if each["verdict"] == "fail"]
    assert (done.returncode, failure["text"]) == (1, f"{closed}: permission denied")
    assert failure["mend"] == f"ls -ld {closed}; ask its owner"


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: mounting needs root")
def test_a_full_file_system_fails_and_hides_no_other_finding(
    tmp_path: Path, found: Callable[..., list[dict[str, Any]]]
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", full], check=True)
    try:
        with contextlib.suppress(OSError):
            (full / "all").write_bytes(bytes(1 << 20))
        failed = {each["name"]: each["text"] for each in found(str(full), status=1) if each["verdict"] == "fail"}
        assert failed["speed of the folder"] == f"{full}: no file can be written: no space left on device"
        assert failed["space"].startswith(f"{full}: 0 B of 64.0 KiB free")
    finally:
        subprocess.run(["umount", full], check=True)
