"""What the tests of checkpoints share."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint.ranks import alone

from slurmopt.job.worker.current_run import CurrentRun
from slurmopt.run_folder import events


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder."""
    folder = tmp_path / "runs" / "demo" / "0001"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def attempt(folder: Path) -> Callable[..., CurrentRun]:
    """`attempt(1)`: the run as its second attempt sees it, in one process."""
    return lambda number=0: alone(folder, number)


@pytest.fixture
def journal(folder: Path) -> Callable[[str], list[dict[str, Any]]]:
    """`journal("checkpoint")`: the events of that name, oldest first."""
    return lambda name: [event for event in events.read(folder / "events.jsonl") if event["event"] == name]


@pytest.fixture
def until() -> Callable[[Callable[[], Any]], Any]:
    """`until(condition)`: its first true answer; the test fails where none comes within a minute."""

    def wait(condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + 60
        while not (answer := condition()):
            assert time.monotonic() < deadline, "it never came true"
            time.sleep(0.01)
        return answer

    return wait
