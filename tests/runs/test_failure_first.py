"""What a user sees first of a run that failed: the error, where it was raised, why it is not restarted; and once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurmopt.cli import main
from slurmopt.job.supervisor.log_tail import last_line
from slurmopt.run_folder.layout import RunFolder

FINAL = "Not restarted: an error in your code (restart.budgets.user_error is 0)"
TRAIN = "def main(config):\n    load('a')\n\n\ndef load(path):\n    raise ValueError(f'no samples in {path!r}')\n"
TRAIN += "\n\nmain.makes_process_group = True  # without torch\n"
PROGRAM = "import sys\nprint('loading')\nprint('error: cannot open data.bin', file=sys.stderr)\nsys.exit(3)\n"


def launch(project: Path, *words: str) -> tuple[str, RunFolder]:
    """What a launch on this machine prints, and its run."""
    (project / "train.py").write_text(TRAIN)
    (project / "program.py").write_text(PROGRAM)
    argv = [sys.executable, "-m", "slurmopt", "launch", "launch.backend=local", "launch.name=x", "launch.id=1", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    return done.stdout, RunFolder(project / "runs" / "x" / "1")


def test_an_exception(project, capsys) -> None:
    out, run = launch(project, "task._target_=train.main")
    page = out[out.index("x/1: failed") :].splitlines()
    node = json.loads(run.result.read_text())["node"]
    assert page[1:4] == [
        "  error      ValueError: no samples in 'a'",
        f"  where      train.py:6 in load, rank 0 on {node}",
        f"  why        {FINAL}",
    ]
    assert "\n".join(page).count("no samples") == 1
    assert main(["logs", "--errors"]) == 0
    errors = capsys.readouterr().out
    assert errors.splitlines()[0] == "x/1, attempt 0: ValueError: no samples in 'a'"
    assert errors.count("no samples") == 3  # the head, the line of code, and the end of the traceback
    assert errors.count("Traceback") == 1
    assert errors.endswith("\n  next       slurmopt retry x/1\n")


def test_a_command_with_a_message(project, capsys) -> None:
    out, run = launch(project, "task.command=[python3,program.py]")
    page = out[out.index("x/1: failed") :].splitlines()
    node = json.loads(run.result.read_text())["node"]
    assert page[1:4] == [
        "  error      error: cannot open data.bin",
        f"  where      python3 ended with exit status 3, rank 0 on {node}",
        f"  why        {FINAL}",
    ]
    assert main(["logs", "--errors"]) == 0
    errors = capsys.readouterr().out.splitlines()
    assert errors[0] == "x/1, attempt 0: error: cannot open data.bin (python3 ended with exit status 3)"
    assert sum("cannot open data.bin" in line for line in errors) == 2


@pytest.mark.parametrize(
    ("end", "error", "why"),
    [
        (
            {
                "outcome": "killed",
                "cause": "out of memory",
                "error": "killed by SIGKILL",
                "reason": "restart.budgets.out_of_memory is 0",
            },
            "out of memory: killed by SIGKILL",
            "Not restarted: the next attempt would have no more memory (restart.budgets.out_of_memory is 0)",
        ),
        (
            {"outcome": "requeue", "cause": "time limit", "reason": "no progress: the last 2 attempts added no step"},
            "time limit",
            "Not restarted: no progress: the last 2 attempts added no step",
        ),
        (
            {
                "outcome": "killed",
                "cause": "hang",
                "error": "rank 3 made no step for 30m",
                "reason": "restart.budgets.hang is 3, and used up",
            },
            "hang: rank 3 made no step for 30m",
            "Not restarted: restart.budgets.hang is 3, and used up",
        ),
        ({"outcome": "user error", "error": "ValueError: early"}, "ValueError: early", ""),
    ],
    ids=["out of memory", "time limit", "hang", "earlier version"],
)
def test_other_causes(make_run, capsys, end, error, why) -> None:
    fields = {"rank": 3, "node": "node2", "next": None, **end}
    make_run().submitted().attempt(rank_3="x\n").end(fields.pop("outcome"), **fields)
    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == [f"  error      {error}", "  where      rank 3 on node2"]
    assert [line for line in lines if line.startswith("  why ")] == ([f"  why        {why}"] if why else [])


def test_the_line_is_the_users_own_not_a_librarys(make_run, capsys) -> None:
    trace = (
        "Traceback (most recent call last):\n"
        f'  File "{os.getcwd()}/code/train.py", line 30, in step\n    loss.backward()\n'
        '  File "/venv/lib/python3.11/site-packages/torch/_tensor.py", line 522, in backward\n    run()\n'
        "RuntimeError: shapes\n"
    )
    made = make_run().submitted().attempt(rank_0="x\n").end("user error", rank=0, error="RuntimeError: shapes")
    verdict = {"attempt": 0, "outcome": "user error", "rank": 0, "node": "n1", "error": "x", "traceback": trace}
    made.folder.result.write_text(json.dumps(verdict))
    assert main(["status"]) == 0
    where = next(line for line in capsys.readouterr().out.splitlines() if "where" in line)
    assert where.endswith("code/train.py:30 in step, rank 0 on n1")


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (b"a\nfatal: no such file\n\n", "fatal: no such file"),
        (b"10%\r50%\rfatal: x\n", "fatal: x"),
        (b"\x1b[31mfatal: x\x1b[0m\n---\n", "fatal: x"),
        (b"fatal: x\nsrun: error: node1: task 0: Exited with exit code 3\nslurmopt: rank 0 ends\n", "fatal: x"),
        (b"\xff\xfe\x00\n", None),
        (b"", None),
        (b"x" * 5000, "x" * 299 + "…"),
    ],
)
def test_the_last_line_that_says_something(tmp_path, log, line) -> None:
    (tmp_path / "log").write_bytes(log)
    assert last_line(tmp_path / "log") == line
    assert last_line(tmp_path / "none") is None


def test_what_anybody_wrote_does_nothing_to_the_terminal(make_run, capsys) -> None:
    nasty = 'Traceback\n  File "\x1b[2J.py", line 3, in \x9b2J\nValueError: \x1b]0;x\x07\n'
    made = make_run().submitted().attempt(rank_0="x\n").end("user error", rank=0, error="\x1b[2J", node="\x1b[31m")
    verdict: dict[str, Any] = {"attempt": 0, "outcome": "user error", "rank": 0, "error": "\x1b[2J", "traceback": nasty}
    made.folder.result.write_text(json.dumps(verdict))
    for words in (["status"], ["status", "--all"], ["list"], ["wait"]):
        main(words)
        assert "\x1b" not in "".join(capsys.readouterr())
