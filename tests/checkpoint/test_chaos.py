"""A seeded slice of `scripts/chaos checkpoints`, which runs at full length by hand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
CHAOS = Path(__file__).resolve().parents[2] / "scripts" / "chaos"


def chaos(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CHAOS), "checkpoints", "--folder", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=folder)


def test_what_was_reported_durable_survives_sigkill_and_is_never_a_mix(tmp_path: Path) -> None:
    done = chaos("--seed", "3", "--kills", "12", "--damages", "0", folder=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    summary = done.stdout.splitlines()[-1]
    assert re.search(r"seed 3: 12 kills \(.*\), \d+ restores, 0 lost; \d+ s: ok$", summary), summary


def test_every_damage_is_found_and_the_newest_whole_checkpoint_is_taken(tmp_path: Path) -> None:
    done = chaos("--seed", "3", "--kills", "0", "--damages", "15", folder=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    assert ", 15 found, 15 fell back, 0 lost" in done.stdout.splitlines()[-1]
