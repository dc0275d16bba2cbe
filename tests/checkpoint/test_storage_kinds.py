"""The table of storage kinds: one entry, one module and one config dataclass make a tier."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from checkpoint import dummy_storage

from slurmopt.config.checkpoint import TIERS
from slurmopt.storage.kinds import KINDS, kind_of


def test_each_kind_has_its_config_and_each_tier_of_the_config_is_a_kind() -> None:
    assert [*TIERS] == [*KINDS]
    assert [config.name for config in TIERS.values()] == [*KINDS]


def test_a_kind_that_is_added_to_the_table_saves_restores_and_is_seen(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "mine" / "0001"
    folder.mkdir(parents=True)
    tests = Path(__file__).parents[1]
    words = [sys.executable, dummy_storage.__file__, str(folder)]
    ended = subprocess.run(
        words, capture_output=True, text=True, timeout=240, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tests)}
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    *_, report = ended.stdout.splitlines()
    assert json.loads(report) == {
        "durable": True,
        "restored": 7,
        "statuses": [0, 0, 0],
        "files": 1,
        "attempt": 7,
        "status": {"dummy": 7},
        "completion": ["dummy"],
    }
    assert "dummy" in ended.stdout.splitlines()[0] + ended.stdout.splitlines()[1]


def test_a_place_without_a_tier_is_told_by_its_scheme() -> None:
    assert [kind_of(place).name for place in ("s3://bucket/run", "/s3/run", "./s3:/run")] == ["s3", "folder", "folder"]


def test_the_table_imports_no_module_of_a_kind() -> None:
    heavy = {"boto3", "numpy", "torch", "slurmopt.storage.folder", "slurmopt.storage.s3.store"}
    code = f"import sys, slurmopt.storage.kinds; print({heavy} & {{*sys.modules}})"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180)
    assert shown.stdout.strip() == "set()"
