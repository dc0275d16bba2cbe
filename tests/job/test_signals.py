"""Who hears the signals of a rank: one thread, in each process that takes them."""

from __future__ import annotations

import subprocess
import sys

from job.harness import Runner


def test_a_rank_has_one_thread_for_signals(runner: Runner) -> None:
    runner.module(
        "train",
        "import threading\n"
        "def main(config):\n    print('threads:', sorted(each.name for each in threading.enumerate()))\n"
        "main.makes_process_group = True  # without torch\n",
    )
    assert runner.run(1, "--function", "train.main") == 0
    assert "threads: ['MainThread', 'slurmopt-heartbeat', 'slurmopt-signals', 'slurmopt-tracing']" in runner.log(0)


def test_a_forked_child_that_takes_signals_hears_its_own_alone() -> None:
    script = (
        "import os, signal\nfrom slurmopt.job import signals\nsignals.install()\n"
        "if os.fork() == 0:\n"
        "    signals.install()\n    os.kill(os.getpid(), signal.SIGTERM)\n    signals.catch_up()\n"
        "    os._exit(10 + signals.terms())\n"
        "child = os.waitstatus_to_exitcode(os.wait()[1])\nsignals.catch_up()\nprint(child, signals.terms())\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=180, check=True)
    assert run.stdout.split() == ["11", "0"]
