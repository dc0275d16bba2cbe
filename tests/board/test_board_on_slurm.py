"""Several boards at once on a real Slurm: they share one squeue, and cancel from one of them cancels the job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from private_cluster import PrivateCluster, new_folder, wait_until
from top_session import LISTENS, Session

SHARED_FOR = 15.0
"""Seconds for which squeue's answer is used."""
BOARDS = 4


@pytest.fixture
def cluster() -> Iterator[PrivateCluster]:
    with PrivateCluster.running("--nodes", "1") as made:
        yield made


@pytest.fixture
def calls(cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file with a line for each call of squeue, in the folder that the test stands in."""
    folder = new_folder()
    squeue = folder / "bin" / "squeue"
    squeue.parent.mkdir()
    squeue.write_text(f'#!/bin/sh\necho squeue >> {folder}/calls\nexec {shutil.which("squeue")} "$@"\n')
    squeue.chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    monkeypatch.setenv("PATH", f"{squeue.parent}:{os.environ['PATH']}")
    yield folder / "calls"
    cluster.run(["scancel", "--me"])
    shutil.rmtree(folder, ignore_errors=True)  # a rank that is just ending may still write


def test_boards_share_one_squeue_and_cancel_cancels(cluster: PrivateCluster, calls: Path) -> None:
    words = ["run", "--name", "shared", "-c", "1", "-t", "10m", "--", "sleep", "600"]
    subprocess.run([sys.executable, "-m", "slurmopt", *words], check=True, stdout=subprocess.DEVNULL)
    began, boards = time.monotonic(), list[Session]()
    try:
        for _ in range(BOARDS):
            boards.append(Session("--refresh", "0.5"))
        for board in boards:
            board.until(LISTENS).until(lambda board=board: b"running" in board.output)
            wait_until(calls.exists, 30, "a call of squeue")
        asked = len(calls.read_text().splitlines())
        assert 1 <= asked <= 1 + (time.monotonic() - began) // SHARED_FOR, "no more than one board would"
        boards[0].press(b"c").until(b"y/n").press(b"y").until(b"is cancelled")
        (job,) = cluster.run(["squeue", "--noheader", "--states=all", "--format=%T"]).stdout.split()
        assert job in ("CANCELLED", "COMPLETING")
        for board in boards:
            board.press(b"q")
            assert board.end() == 0
    finally:
        for board in boards:
            board.close()
