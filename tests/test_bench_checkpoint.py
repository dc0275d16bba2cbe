"""The smoke run of `scripts/bench checkpoint`: everything is measured, at a size that says nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PEERS = ("slurmopt", "slurmopt, one buffer", "DCP async, thread", "DCP async, process", "torch.save")
TARGETS = (
    "blocked, first save",
    "blocked, later save",
    "until durable, of direct I/O",
    "until durable, of DCP",
    "restore, of direct I/O",
    "training lost",
    "2 buffers",
    "1 buffer",
    "upload over http,",
    "upload over https,",
)

pytest.importorskip("torch")
pytest.importorskip("boto3")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, object]]:
    """What it prints, and what it writes."""
    raw = tmp_path_factory.mktemp("bench") / "raw.json"
    argv = [sys.executable, str(ROOT / "scripts" / "bench"), "checkpoint", "--gib", "0.01", "--runs", "1"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run([*argv, "--json", str(raw)], capture_output=True, text=True, env=env, timeout=600)
    # Far too small to meet its targets, and that is no error.
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(raw.read_text())


def test_every_library_has_a_row_that_says_what_it_leaves_out(measured: tuple[str, dict[str, object]]) -> None:
    lines = measured[0].splitlines()
    for peer in PEERS:
        row = next(line for line in lines if line.startswith(f"{peer}  "))
        assert "checksum" in row or "the same" in row


def test_every_target_has_a_verdict(measured: tuple[str, dict[str, object]]) -> None:
    verdicts = [line.split(maxsplit=1) for line in measured[0].splitlines() if line.startswith("  ")]
    for target in TARGETS:
        assert any(target in rest and verdict in ("ok", "MISSED") for verdict, rest in verdicts), target


def test_the_raw_numbers_have_what_the_tables_are_made_of(measured: tuple[str, dict[str, object]]) -> None:
    details = measured[1]["details"]
    assert isinstance(details, dict)
    ours = details["checkpoint"]["slurmopt"][0]
    assert ours["bytes"] == pytest.approx(0.01 * (1 << 30), rel=0.05)
    for name in ("pre-fault", "first steps", "blocked, first", "durable, later", "restore", "lost", "memory"):
        assert ours["found"][name], name
        assert min(ours["found"][name]) >= 0, name
    assert {"boto3.upload_file", "slurmopt"} <= details["upload, https"].keys()


def test_what_is_not_installed_is_said_and_left_out(measured: tuple[str, dict[str, object]]) -> None:
    skipped = " ".join(map(str, measured[1]["skipped"]))  # type: ignore[call-overload]
    for peer in ("torchsnapshot", "s3torchconnector"):
        assert (f"skipped: {peer}:" in measured[0]) == (peer in skipped)
        assert peer in skipped or f"\n{peer}  " in measured[0]


def test_a_size_that_cannot_be_is_refused() -> None:
    argv = [sys.executable, str(ROOT / "scripts" / "bench"), "checkpoint", "--gib", "0"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=180)
    assert done.returncode == 2
    assert "--gib: from 0.01 to 64" in done.stderr
