"""A rank that submitit starts: submitit's own process, our outcome."""

from __future__ import annotations

from pathlib import Path

import pytest
from job.harness import REPOSITORY, Runner, wait_for

from slurmopt.job.worker.rank import submitit_task

submitit = pytest.importorskip("submitit")

TASKS = """
import atexit, os, pathlib, signal, sys, threading
from slurmopt import Requeue, stop_requested

def good(config):
    os.kill(os.getpid(), signal.SIGUSR2)
    while not stop_requested():
        pass
    return {"lr": config.lr}

def threads(config):
    return sorted(each.name for each in threading.enumerate() if each.name.startswith("slurmopt-"))

def bad(config):
    raise ValueError("no such thing")

def again(config):
    raise Requeue("saved")

HERE = pathlib.Path(__file__).parent

class Witness:  # of an interpreter that is taken apart
    def __del__(self, touch=os.open, path=str(HERE / "taken-apart"), flags=os.O_CREAT | os.O_WRONLY):
        touch(path, flags)

witness = Witness()
sys.witness = witness
atexit.register((HERE / "exit-handlers").touch)
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


def test_one_thread_hears_the_signals_of_a_rank_that_submitit_started(executor: object, runner: Runner) -> None:
    names = _submit(executor, runner, "threads").result()  # type: ignore[attr-defined]
    assert names == ["slurmopt-heartbeat", "slurmopt-signals", "slurmopt-tracing"]


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


@pytest.mark.parametrize("name", ["bad", "again"])
def test_a_rank_that_did_not_finish_ends_before_the_interpreter_is_taken_apart(
    executor: object, runner: Runner, name: str
) -> None:
    """NCCL's threads would then ask a store that is gone, and abort the process. Of a good end the witness tells."""
    for task in ("good", name):
        (runner.code / "taken-apart").unlink(missing_ok=True)
        (runner.code / "exit-handlers").unlink(missing_ok=True)
        job = _submit(executor, runner, task)
        job.wait()  # type: ignore[attr-defined]
        wait_for((runner.code / "exit-handlers").exists, "the exit handlers")
        assert (runner.code / "taken-apart").exists() == (task == "good")
