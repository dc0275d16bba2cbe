"""`slurmopt wait`: its exit statuses."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from json_answer import data_of

from slurmopt.cli import main


@pytest.fixture
def running(make_run) -> Any:
    """A run whose fresh heartbeat shows that it lives."""
    made = make_run("running", "3-c").submitted("local-1", backend="local", host="elsewhere", pid=1, pid_started=1)
    return made.attempt(job="local-1").beat(step=1, total_steps=9)


@pytest.fixture
def ended(make_run) -> None:
    make_run("good", "1-a").submitted("5").attempt(job="5").end("finished")
    make_run("bad", "2-b").submitted("6").attempt(job="6").end("user error", error="ValueError: no", rank=0)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["good"], 0, "good/1-a: finished\n"),
        (["bad"], 1, "bad/2-b: failed: ValueError: no\n"),
        (["good", "bad"], 1, "good/1-a: finished\nbad/2-b: failed: ValueError: no\n"),
        (["good", "running", "--any"], 0, "good/1-a: finished\n"),
        (["bad", "running", "--any", "--timeout", "1s"], 1, "bad/2-b: failed: ValueError: no\n"),
        (["good", "running", "--timeout", "1s"], 124, "good/1-a: finished\nrunning/3-c: running: 1/9\n"),
    ],
)
def test_the_exit_status_says_how_they_ended(ended, running, capsys, words, status, said) -> None:
    assert main(["wait", *words]) == status
    out, err = capsys.readouterr()
    assert out == said
    assert err == ("slurmopt: error: not ended after 1s: running/3-c\n" if status == 124 else "")


def test_json_is_that_of_status(ended, running, capsys) -> None:
    assert main(["wait", "good", "bad", "--json"]) == 1
    shown = data_of(capsys.readouterr().out)
    assert [(one["name"], one["state"], one["error"]) for one in shown] == [
        ("good", "finished", None),
        ("bad", "failed", "ValueError: no"),
    ]
    assert main(["wait", "good", "running", "--any", "--json"]) == 0
    assert [one["name"] for one in data_of(capsys.readouterr().out)] == ["good"]


def test_it_waits_for_the_end(running) -> None:
    process = waiting("running", "--timeout", "60s")
    running.end("finished")
    out, err = process.communicate(timeout=180)
    assert (process.returncode, out, err) == (0, "running/3-c: finished\n", "")


def test_ctrl_c_ends_the_wait_alone(running) -> None:
    code = (
        "import os, signal, threading\n"
        "from slurmopt.sweeps.status import waiting\n"
        "look = waiting.Waiting.look\n"
        "def looks(self):\n"
        "    look(self)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "waiting.Waiting.look = looks\n"
        "from slurmopt.cli import main\n"
        "raise SystemExit(main(['wait', 'running']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_many_that_wait_ask_slurm_through_one_answer(make_run, tmp_path) -> None:
    for number in range(3):
        make_run("pending", f"{number}-x").submitted(str(number + 10))
    calls = tmp_path / "calls"
    (tools := tmp_path / "bin").mkdir()
    (tools / "squeue").write_text(f"#!/bin/sh\necho x >> {calls}\nexit 0\n")
    (tools / "squeue").chmod(0o755)
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    processes = [waiting(f"pending/{number}-x", "--timeout", "3s", env=env) for number in range(3)]
    for process in processes:
        process.communicate(timeout=180)
    assert calls.read_text().count("x") <= 2


@pytest.mark.parametrize(
    ("words", "said"), [(["--timeout", "x"], "--timeout: not a time: 'x'"), (["nothing"], "no run 'nothing'")]
)
def test_bad_input_is_one_line(ended, capsys, words, said) -> None:
    assert main(["wait", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def waiting(*words: str, **options: Any) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "slurmopt", "wait", *words]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
