"""A command's own Python that asks to be started again: whatever stands between it and the rank, its word arrives."""

from __future__ import annotations

import importlib.util
import signal
import sys

import pytest
from job.harness import Runner, send

from slurmopt.restart import causes

PYTHON = sys.executable
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="NOT TESTED: torch is not installed")

TRAINING = """
import sys, threading, time
import torch
import torch.distributed as dist
from slurmopt import current_run
from slurmopt.checkpoint import Checkpointer

def main():
    state, step = {"weight": torch.zeros(2)}, 0
    with Checkpointer({"shared": {"every": 10**6}}, current_run()) as checkpointer:
        step = checkpointer.restore(state)
        print("from", step, flush=True)
        while True:
            step += 1
            time.sleep(0.01)
            checkpointer.save(step, state)
"""


def test_an_uncaught_requeue_of_a_plain_script_is_no_failure(runner: Runner) -> None:
    runner.module("train", "import atexit, slurmopt\natexit.register(print, 'bye')\nraise slurmopt.Requeue('saved')\n")
    assert runner.run(1, "--", PYTHON, "train.py") == 75
    assert runner.last_event()["outcome"] == "requeue"
    assert runner.log(0).splitlines() == ["slurmopt: saved", "bye"]


@pytest.mark.parametrize(("error", "status"), [("slurmopt.Requeue('saved')", 75), ("ValueError('bad data')", 1)])
def test_another_hook_for_uncaught_errors_keeps_its_place(runner: Runner, error: str, status: int) -> None:
    """Set after the import of slurmopt, and by somebody who knows of no other hook."""
    runner.module(
        "train",
        "import sys, slurmopt\nsys.excepthook = lambda kind, *_: print('hook of', kind.__name__)\n"
        f"slurmopt.stop_requested()\nraise {error}\n",
    )
    assert runner.run(1, "--", PYTHON, "train.py") == status
    assert runner.log(0).strip() == ("slurmopt: saved" if status == 75 else "hook of ValueError")


@needs_torch
def test_torchruns_workers_come_back_from_what_they_saved(runner: Runner) -> None:
    """torchrun makes exit status 1 of whatever a worker says."""
    group = "dist.init_process_group('gloo')\nmain()\n"
    runner.module("train", TRAINING + group)
    words = ("--heartbeat", "0.3", "--per", "node", "--", PYTHON, "-m", "torch.distributed.run")
    process = runner.start(1, *words, "--nproc-per-node", "2", "train.py")
    runner.wait_for_log(0, "from 0")
    runner.folder.stop_request(0).touch()
    assert runner.finish(process) == 75, runner.log(0)
    assert runner.last_event()["outcome"] == "requeue"
    assert "before the job ends" in runner.log(0)
    assert list(runner.folder.checkpoints.glob("step-*"))


@needs_torch
def test_a_checkpointer_in_another_thread_says_what_it_cannot_hear_and_comes_back_all_the_same(runner: Runner) -> None:
    """The thread's own end makes no exit status; nor would a library that catches every error."""
    runner.module("train", TRAINING + "thread = threading.Thread(target=main)\nthread.start()\nthread.join()\n")
    process = runner.start(1, "--heartbeat", "0.3", "--", PYTHON, "train.py")
    runner.wait_for_log(0, "from 0")
    runner.folder.stop_request(0).touch()
    assert runner.finish(process) == 75, runner.log(0)
    told = [line for line in runner.log(0).splitlines() if "in the main thread" in line]
    assert len(told) == 1
    assert "SIGTERM will end this process before it can save" in told[0]


def test_a_folder_that_cannot_be_looked_at_is_no_word_to_stop(runner: Runner) -> None:
    runner.module(
        "train",
        "import errno, os, slurmopt\nreal = os.stat\n"
        "def stale(path, *more, **words):\n"
        "    if str(path).endswith('/stop'):\n        raise OSError(errno.ESTALE, 'Stale file handle')\n"
        "    return real(path, *more, **words)\n"
        "os.stat = stale\nprint('stop:', slurmopt.stop_requested())\n",
    )
    assert runner.run(1, "--", PYTHON, "train.py") == 0
    assert runner.log(0).strip() == "stop: False"


def test_a_requeue_folder_is_no_wish(runner: Runner) -> None:
    runner.folder.requeue_wish().mkdir()
    assert runner.run(1, "--", "true") == 0
    assert runner.result()["outcome"] == "finished"


def test_a_wish_counts_for_the_ranks_that_ended_before_it_was_there(runner: Runner) -> None:
    late = "trap '' TERM; sleep 1; : > $SLURMOPT_RUN_FOLDER/requeue; exit 1"
    assert runner.run(2, "--", "sh", "-c", f"[ $RANK = 0 ] && exit 1; {late}") == 75


@needs_torch
def test_a_torchrun_that_the_promised_signal_ended_comes_back(runner: Runner) -> None:
    runner.module("train", "import time\nprint('ready', flush=True)\ntime.sleep(600)\n")
    words = ("--forward", "TERM", "--", PYTHON, "-m", "torch.distributed.run", "train.py")
    process = runner.start(1, "--heartbeat", "0.3", "--per", "node", *words)
    runner.wait_for_log(0, "ready")
    send(process, signal.SIGUSR1)
    runner.finish(process)
    assert runner.last_event()["cause"] == causes.TIME_LIMIT


def test_a_command_that_ends_by_the_signal_it_was_promised_was_no_user_error(runner: Runner) -> None:
    runner.module("train", "")
    script = "trap 'exit 130' INT; echo ready; while :; do sleep 0.05; done"
    process = runner.start(1, "--forward", "INT", "--", "bash", "-c", script)
    runner.wait_for_log(0, "ready")
    send(process, signal.SIGUSR1)
    runner.finish(process)
    assert runner.last_event()["cause"] == causes.TIME_LIMIT
