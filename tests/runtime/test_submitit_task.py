"""A rank that submitit starts: submitit's own process, our outcome."""

from __future__ import annotations

from pathlib import Path

import pytest
from runtime.harness import REPOSITORY, Runner, wait_for

from slurmopt.runtime.rank import submitit_task

submitit = pytest.importorskip("submitit")

TASKS = """
import os, signal
from slurmopt import Requeue, stop_requested

def good(config):
    os.kill(os.getpid(), signal.SIGUSR2)
    while not stop_requested():
        pass
    return {"lr": config.lr}

def bad(config):
    raise ValueError("no such thing")

def again(config):
    raise Requeue("saved")
"""


@pytest.fixture
def executor(runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    runner.module("tasks", TASKS)
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY}:{runner.code}")
    executor = submitit.LocalExecutor(tmp_path / "submitit")
    executor.update_parameters(timeout_min=2)
    return executor


def _submit(executor: object, runner: Runner, name: str) -> object:
    words = ["--exit-after-signal", "finished", "--function", f"tasks.{name}"]
    return executor.submit(submitit_task, [str(runner.folder.path), *words])  # type: ignore[attr-defined]


def test_submitits_result_is_the_functions_and_its_signals_are_ours(executor: object, runner: Runner) -> None:
    assert _submit(executor, runner, "good").result() == {"lr": 0.1}  # type: ignore[attr-defined]


def test_submitit_records_the_failure(executor: object, runner: Runner) -> None:
    job = _submit(executor, runner, "bad")
    with pytest.raises(submitit.core.utils.FailedJobError, match="no such thing"):
        job.result()  # type: ignore[attr-defined]
    beat = runner.beat(0)
    assert beat is not None
    assert beat.outcome is not None
    assert beat.outcome["outcome"] == "user error"


def test_a_rank_to_be_requeued_leaves_no_result_with_submitit(executor: object, runner: Runner) -> None:
    job = _submit(executor, runner, "again")
    wait_for(lambda: (beat := runner.beat(0)) and beat.outcome, "the outcome")
    job.wait()  # type: ignore[attr-defined]
    assert not job.paths.result_pickle.exists()  # type: ignore[attr-defined]
