from __future__ import annotations

from pathlib import Path

import pytest
from job.harness import Runner

from slurmopt.run_folder.layout import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """The folder of a run whose first attempt has begun."""
    run = RunFolder(tmp_path / "runs" / "test" / "one")
    run.make()
    (run.heartbeats / "attempt-0").mkdir()
    return run


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    folder = RunFolder(tmp_path / "runs" / "test" / "one")
    folder.make()
    folder.events.touch()
    folder.config.write_text("lr: 0.1\nhome: ${oc.env:TEST_HOME,nowhere}\n")
    code = tmp_path / "code"
    code.mkdir()
    return Runner(folder, code)
