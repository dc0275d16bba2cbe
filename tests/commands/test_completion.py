"""Completion, as the shells themselves do it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slurmopt.commands.complete.main import candidates

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(project: Path) -> Path:
    """A project with two runs, and `slurmopt` on the PATH."""
    for name, run_id in (("mine", "20261121-aaaa"), ("other", "20261121-bbbb")):
        run = project / "runs" / name / run_id
        run.mkdir(parents=True)
        (run / "events.jsonl").write_text('{"event": "created", "time": 1.0}\n')
    script = project / "bin" / "slurmopt"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m slurmopt "$@"\n')
    script.chmod(0o755)
    return project


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("slurmopt st", ["status"]),
        ("slurmopt completion ", ["bash", "zsh", "fish"]),
        ("slurmopt logs m", ["mine"]),
        ("slurmopt logs other/", ["other/20261121-bbbb"]),
        ("slurmopt cancel 20261121-a", ["20261121-aaaa"]),
        ("slurmopt status mine --j", ["--json"]),
        ("slurmopt logs --rank ", []),
        ("slurmopt logs mine o", []),
        ("slurmopt status mine o", ["other"]),
        ("slurmopt retry --more-time 2 mine --more-m", ["--more-memory"]),
        ("slurmopt results --plot ", []),
        ("slurmopt checkpoint export mine --format s", ["safetensors"]),
        ("slurmopt checkpoint prune --keep 2 o", ["other"]),
        ("slurmopt nonsense ", []),
    ],
)
def test_commands_options_and_runs(folder: Path, line: str, expected: list[str]) -> None:
    assert candidates(line) == expected


def test_runs_of_another_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").rename(tmp_path / "moved")
    assert candidates("slurmopt logs --folder moved mi") == ["mine"]
    assert candidates("slurmopt logs mi") == []


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("+experiment=mi", {"+experiment=mine"}),
        ("+experiment=mine l", {"launch.", "lr="}),
        ("+experiment=mine resources.nodes", {"resources.nodes="}),
        ("cluster=l", {"cluster=local"}),
        ("no.such.key=1 resources.no", set()),
        ("--conf", {"--config-dir"}),
    ],
)
def test_overrides_of_a_launch(folder: Path, typed: str, expected: set[str]) -> None:
    assert set(candidates(f"slurmopt launch {typed}")) == expected


def test_overrides_with_a_config_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "conf").rename(tmp_path / "configs")
    assert candidates("slurmopt launch +experiment=mi") == []
    assert candidates("slurmopt launch --config-dir configs +experiment=mi") == ["+experiment=mine"]


def run_shell(folder: Path, *command: str) -> str:
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_bash_replaces_only_what_follows_its_word_breaks(folder: Path) -> None:
    script = """
eval "$(slurmopt completion bash)"
complete -p slurmopt
try() { COMP_LINE=$1; COMP_POINT=${#1}; _slurmopt slurmopt; echo "${COMPREPLY[*]}"; }
try "slurmopt sta"
try "slurmopt launch +experiment=mi"
COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
try "slurmopt launch +experiment=mi"
try "slurmopt logs other/"
"""
    lines = run_shell(folder, "bash", "--norc", "-c", script).splitlines()
    assert lines[0] == "complete -o default -F _slurmopt slurmopt"
    assert lines[1:] == ["status", "mine", "+experiment=mine", "other/20261121-bbbb"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish(folder: Path) -> None:
    script = (
        'slurmopt completion fish | source; complete -C "slurmopt sta"; complete -C "slurmopt launch +experiment=mi"'
    )
    assert run_shell(folder, "fish", "-c", script).split() == ["status", "+experiment=mine"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh(folder: Path) -> None:
    script = """
compdef() { echo "$@"; }
compadd() { print -r -- ${(P)@[-1]}; }
_files() { echo files; }
eval "$(slurmopt completion zsh)"
try() { words=("$@"); CURRENT=$#; PREFIX=$@[-1]; _slurmopt; }
try slurmopt sta
try slurmopt launch +experiment=mi
try slurmopt logs nobody
"""
    assert run_shell(folder, "zsh", "-f", "-c", script).splitlines() == [
        "_slurmopt slurmopt",
        "status",
        "+experiment=mine",
        "files",
    ]
