"""`slurmopt storage bench` on real file systems: what it says, what it leaves, and where it refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from private_cluster import wait_until

from slurmopt.cli import main
from slurmopt.errors import InputError
from slurmopt.storage.filesystem.usage import Usage
from slurmopt.storage.rates.measure import measure
from slurmopt.storage.rates.rate import MIB, Rate
from slurmopt.storage.rates.verdicts import shown, verdict
from slurmopt.storage.rates.workplace import check_room, workplace

NAMES = [
    *("sequential write", "sequential read", "random read", "random write"),
    *("small file write", "small file read", "create", "stat", "remove"),
]


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "disk":
        yield tmp_path
        return
    if not Path("/dev/shm").is_dir():
        pytest.skip("NOT TESTED: no /dev/shm")
    path = Path("/dev/shm") / f"slurmopt-test-{os.urandom(4).hex()}"
    path.mkdir()
    yield path
    path.rmdir()  # fails where anything is left


def test_all_rates_and_nothing_left(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["storage", "bench", str(folder), "--bytes", "16M", "--seconds", "0.2", "--json"]
    assert main(words) in (0, 1)  # a busy disk may be very slow
    told: dict[str, Any] = data_of(capsys.readouterr().out)
    assert [rate["name"] for rate in told["rates"]] == NAMES
    assert all(rate["count"] > 0 and rate["per_second"] > 0 for rate in told["rates"])
    assert told["rates"][0]["count"] <= 16 * MIB
    assert "fsync" in told["rates"][0]["how"]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_bench_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "slurmopt", "storage", "bench", str(tmp_path), "--bytes", "64M", "--seconds", "60"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: any(tmp_path.rglob("small-*")), 120, "small files are written")
        process.send_signal(number)
        assert process.wait(60) == 130
    assert list(tmp_path.iterdir()) == []


def test_of_a_killed_bench_the_large_file_is_gone(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "slurmopt", "storage", "bench", str(tmp_path), "--bytes", "64M", "--seconds", "60"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: any(tmp_path.glob(".slurmopt-bench-*")), 120, "its folder is there")
        process.kill()
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.name.startswith(("small-", "empty-")) for path in left)
    assert all(path.stat().st_mode & 0o77 == 0 for path in tmp_path.rglob("*")), "others could read it"


@pytest.mark.parametrize(
    ("usage", "quota_left", "said"),
    [
        (
            Usage(100 * MIB, 20 * MIB, 0, 0, False),
            None,
            "has 20.0 MiB free; measuring takes 50.0 MiB .* free: make room",
        ),
        (Usage(100 * MIB, 30 * MIB, 0, 0, False), None, "has 30.0 MiB free; .* free: give a smaller --bytes, or make"),
        (Usage(1000 * MIB, 900 * MIB, 0, 0, False), 10 * MIB, "has 10.0 MiB free"),
        (Usage(1000 * MIB, 900 * MIB, 100, 15, False), None, "has 15 inodes left, and measuring takes 10"),
        (Usage(1000 * MIB, 900 * MIB, 100, 15, True), None, "is mounted read-only"),
    ],
)
def test_a_folder_without_room(usage: Usage, quota_left: int | None, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_room(Path("/x"), 50 * MIB, 10, 20 * MIB, usage, quota_left)


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: mounting needs root")
def test_a_full_file_system_refuses_and_one_that_fills_up_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24M,nr_inodes=1000", "none", tmp_path], check=True)
    try:
        assert main(["storage", "bench", str(tmp_path)]) == 2
        assert "has 24.0 MiB free; measuring takes" in capsys.readouterr().err
        results = [result for _, result in measure(tmp_path, 64 * MIB, 60.0, lambda count: None)]
        assert (results[0].name, results[0].text) == ("one large file", "no space left on device")
        assert {"create", "stat"} & {result.name for result in results} or len(results) == 3
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (Rate("sequential write", "MiB/s", 1000 * MIB, 1.0, "x"), "pass"),
        (Rate("sequential write", "MiB/s", 100 * MIB, 1.0, "x"), "warn"),
        (Rate("sequential write", "MiB/s", 10 * MIB, 1.0, "x"), "fail"),
        (Rate("stat", "operations/s", 5000, 1.0, "x"), "pass"),
        (Rate("stat", "operations/s", 0, 1.0, "x"), "fail"),
    ],
)
def test_verdicts(rate: Rate, expected: str) -> None:
    found = verdict(rate)
    assert found.verdict == expected
    assert (found.mend is None) == (expected == "pass")


def test_a_rate_for_people() -> None:
    assert shown(Rate("sequential read", "MiB/s", 3 * MIB, 2.0, "x")) == "1.5 MiB/s"
    assert shown(Rate("stat", "operations/s", 24_000, 2.0, "x")) == "12,000 /s"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bench", "gone"], "gone: no such file or folder; a bucket is written s3://gone"),
        (["bench", "conf/experiment/mine.yaml"], "is not a folder"),
        (["bench", ".", "--bytes", "1K"], "--bytes: 1,024 is not from 8M to 64G"),
        (["bench", ".", "--seconds", "0"], "'0' is not a number of seconds"),
        (["show", "gs://bucket/x"], "storage at gs:// is not known"),
        (["show", "https://bucket.s3.amazonaws.com/x"], "storage at https:// is not known"),
        (["show", "s3:/bucket"], "is not a place in S3; write s3://BUCKET"),
        (["show", "s3://a"], "is not a place in S3"),
        (["show", "s3://bucket/a//b"], "a prefix has plain names"),
        (["show", "nul\0"], "embedded null"),
        (["plan", ".", "--kind", "logs"], "not on Lustre, and has no OSTs; --osts N plans"),
        (["stripe", "new", "--kind", "logs"], "not on Lustre, which alone has stripes"),
        (["prefetch", "."], "not on Lustre, so nothing is loaded from S3 there"),
        (["stripe", "s3://bucket", "--kind", "logs"], "s3://bucket is a bucket; give a path"),
        (["shwo", "."], "no command 'shwo' (did you mean 'show'?)"),
        (["show"], "the following arguments are required: PATH"),
    ],
)
def test_bad_input(words: list[str], said: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["storage", *words]) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    assert said in told.err
    assert told.out == ""
    assert not (project / "new").exists()


def test_a_folder_that_nobody_may_enter() -> None:
    if os.geteuid():
        pytest.skip("NOT TESTED: another user needs root")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        closed = Path(folder) / "closed"
        (closed / "below").mkdir(parents=True)
        os.chmod(closed, 0o700)
        asked = (
            ("show", closed / "below", "permission denied"),
            ("bench", folder, "no file can be made there: permission"),
        )
        for command, path, said in asked:
            done = as_nobody([command, str(path)])
            assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
            assert said in done.stderr


def as_nobody(words: list[str]) -> subprocess.CompletedProcess[str]:
    """`slurmopt storage` by a user without any rights; all modules are imported before."""
    code = (
        "import os, sys, slurmopt.commands.storage.main as m; from slurmopt.cli import main\n"
        "import importlib; [importlib.import_module(module) for module, _ in m.COMMANDS.values()]\n"
        "import slurmopt.storage.inspection, slurmopt.storage.rates.measure\n"
        "os.chdir('/'); os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "sys.exit(main(['storage', *sys.argv[1:]]))"
    )
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)


def test_another_folder_in_the_place_of_ours_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "weights").write_text("years of work")
    with workplace(tmp_path) as place:
        os.close(os.open("small", os.O_CREAT, dir_fd=place))
        (ours,) = tmp_path.glob(".slurmopt-bench-*")
        ours.rename(tmp_path / "moved")
        precious.rename(ours)
    assert (ours / "weights").read_text() == "years of work"
    assert list((tmp_path / "moved").iterdir()) == []
