"""The smoke run of `scripts/bench restart` without a cluster: its parts are measured, at a size that says nothing."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from private_cluster import clean_environment, unprivileged_user

ROOT = Path(__file__).resolve().parents[1]

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """What it prints, and what it writes, as a user who can start no cluster."""
    user = unprivileged_user() if os.getuid() == 0 else None
    home = Path(pwd.getpwnam(user).pw_dir) if user else tmp_path_factory.mktemp("bench")
    raw = home / f"bench-{os.getpid()}.json"
    argv = [sys.executable, str(ROOT / "scripts" / "bench"), "restart", "--runs", "1", "--json", str(raw)]
    done = subprocess.run(
        argv,
        env={**clean_environment(), "HOME": str(home)},
        user=user,
        group=user,
        extra_groups=[] if user else None,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: a target is missed, as it may on a busy machine
    assert raw.exists(), done.stdout + done.stderr
    found = json.loads(raw.read_text())
    raw.unlink()
    return done.stdout, found


def test_each_part_is_measured_beside_what_it_is_compared_with(measured: tuple[str, dict[str, Any]]) -> None:
    _, found = measured
    assert set(found["benches"]["looking at restarts"]) >= {"python -c pass", "tend, 500 ended runs"}
    steps = found["benches"]["steps of 5 ms"]
    assert set(steps) == {"plain torch, 1000 steps", "slurmopt, no calls, 1000 steps", "slurmopt, 1000 steps"}
    assert all(sample["seconds"] > 0 for samples in steps.values() for sample in samples)
    assert found["details"]["steps of 5 ms"]["beside"] > 0  # heartbeats and the lookout take something


def test_tend_asks_slurm_nothing_about_runs_that_have_ended(measured: tuple[str, dict[str, Any]]) -> None:
    _, found = measured
    (target,) = [target for target in found["targets"] if target["what"].startswith("Slurm's commands")]
    assert target["measured"] == 0


def test_it_says_what_it_cannot_measure_without_a_cluster(measured: tuple[str, dict[str, Any]]) -> None:
    printed, _ = measured
    assert "skipped: restarts, and Slurm's RPCs: no cluster" in printed
