"""The `slurmopt` command: what it prints, what it imports, how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slurmopt import __version__
from slurmopt.cli import main
from slurmopt.commands import COMMANDS

ROOT = Path(__file__).parents[2]
HEAVY = ("hydra", "omegaconf", "torch", "boto3", "pynvml", "rich", "jinja2", "yaml", "submitit", "numpy")


def slurmopt(*words: str, cwd: Path, **options) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "slurmopt", *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=180, **options)


def test_help_shows_every_command_with_its_line(tmp_path: Path) -> None:
    for words in ([], ["--help"], ["-h"]):
        shown = slurmopt(*words, cwd=tmp_path)
        assert shown.returncode == 0
        for name, (_, line) in COMMANDS.items():
            assert f"{name} " in shown.stdout
            assert line in shown.stdout
        assert "_complete" not in shown.stdout


def test_version(tmp_path: Path) -> None:
    assert slurmopt("--version", cwd=tmp_path).stdout == f"slurmopt {__version__}\n"


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "launch"])
def test_each_command_has_help_of_its_own(tmp_path: Path, command: str) -> None:
    shown = slurmopt(command, "--help", cwd=tmp_path)
    assert shown.returncode == 0
    assert f"usage: slurmopt {command}" in shown.stdout


def test_a_misspelt_command_is_guessed(tmp_path: Path) -> None:
    shown = slurmopt("stauts", cwd=tmp_path)
    assert shown.returncode == 2
    assert shown.stdout == ""
    assert shown.stderr == (
        "slurmopt: error: no command 'stauts' (did you mean 'status'?); valid: " + ", ".join(COMMANDS) + "\n"
    )


@pytest.mark.parametrize("command", ["status", "logs", "cancel"])
def test_a_run_that_is_not_there_is_one_line_and_status_2(tmp_path: Path, command: str) -> None:
    shown = slurmopt(command, "nobody", cwd=tmp_path)
    assert shown.returncode == 2
    assert shown.stdout == ""
    assert shown.stderr.startswith("slurmopt: error: no run")
    assert shown.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["--help"], ["list"], ["status", "--all", "--json"], ["logs", "x"], ["cancel", "x"]])
def test_quick_commands_import_nothing_heavy(tmp_path: Path, words: list[str]) -> None:
    run = tmp_path / "runs" / "mine" / "one"
    run.mkdir(parents=True)
    (run / "events.jsonl").write_text('{"event": "submitted", "backend": "sbatch", "job": "1"}\n')
    code = (
        "import sys; from slurmopt.cli import main; main(sys.argv[1:]);"
        f"print('heavy:', *(name for name in {HEAVY!r} if name in sys.modules))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180)
    assert done.stdout.splitlines()[-1].split() == ["heavy:"]


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    log = tmp_path / "runs" / "mine" / "one" / "logs" / "attempt-0" / "rank-0.log"
    log.parent.mkdir(parents=True)
    log.write_text("line\n" * 1_000_000)
    (tmp_path / "runs" / "mine" / "one" / "events.jsonl").write_text('{"event": "created"}\n')
    command = f"{sys.executable} -m slurmopt logs | head -n 1"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180
    )
    assert (done.stdout, done.stderr) == ("line\n", "")


def test_ctrl_c_ends_quietly_with_130(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "mine" / "one"
    run.mkdir(parents=True)
    (run / "events.jsonl").write_text(
        '{"event": "submitted", "backend": "local", "job": "local-1", "host": "elsewhere", "pid": 1}\n'
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    watching = subprocess.Popen(
        [sys.executable, "-m", "slurmopt", "status", "--watch"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    assert "mine/one" in watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _, error = watching.communicate(timeout=180)
    assert watching.returncode == 130
    assert error == ""


def test_what_the_system_refuses_is_one_line(tmp_path: Path, monkeypatch, capsys) -> None:
    run = tmp_path / "runs" / "mine" / "one"
    (run / "logs" / "attempt-0" / "rank-0.log").mkdir(parents=True)  # a folder where a log should be
    (run / "events.jsonl").write_text('{"event": "created"}\n')
    monkeypatch.chdir(tmp_path)
    assert main(["logs"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("slurmopt: error: ")
    assert "rank-0.log" in error
    assert error.count("\n") == 1
