"""`--json`: one object with the same keys on every command, of errors and warnings too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from json_answer import KEYS, data_of, errors_of

from slurmopt import command_output
from slurmopt.cli import main
from slurmopt.commands import COMMANDS
from slurmopt.exit_status import guarded

GROUPS = {name: import_module(module).COMMANDS for name, (module, _) in COMMANDS.items() if module.endswith(".main")}
ALL = {name: module for name, (module, _) in COMMANDS.items() if name not in GROUPS} | {
    f"{group} {name}": module for group, commands in GROUPS.items() for name, (module, _) in commands.items()
}


def _help(name: str) -> str:
    text: str = import_module(ALL[name]).parser().format_help()
    return text


FOR_PEOPLE_OR_PROGRAMS = {"top", "monitor", "completion", "export"}
"""A full screen, the output of the user's command, and texts in the form of another program."""
MORE_WORDS = {
    "compare": ["gone/1"],
    "throttle": ["2"],
    "checkpoint fetch": ["--to", "copy"],
    "checkpoint export": ["--to", "copy", "--format", "torch"],
    "checkpoint prune": ["--keep", "1", "--yes"],
}
NO_RUN = {"run", "launch", "init", "import", "list"}
OF_RUNS = sorted(name for name in set(ALL) - FOR_PEOPLE_OR_PROGRAMS - NO_RUN if "RUN" in _help(name))


def test_every_command_with_an_answer_has_it() -> None:
    without = {name for name in ALL if "--json" not in _help(name)}
    assert without == FOR_PEOPLE_OR_PROGRAMS


@pytest.mark.parametrize("name", OF_RUNS)
def test_a_run_that_is_not_there(name: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*name.split(), "gone", *MORE_WORDS.get(name, [])]
    assert main(words) == 2
    plain = capsys.readouterr()
    assert plain.out == ""
    assert main([*words, "--json"]) == 2
    told = capsys.readouterr()
    assert told.err == plain.err
    answer = json.loads(told.out)
    assert list(answer) == KEYS
    assert (answer["command"], answer["warnings"]) == (name, [])
    assert [f"slurmopt: error: {message}\n" for message in errors_of(told.out)] == told.err.splitlines(keepends=True)
    # a retry tells of each run that was named, tend of what it did
    assert answer["data"] in (None, []) or [one["error"] for one in answer["data"]] == errors_of(told.out)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["status", "--json", "--bogus"], "InputError"),
        (["statsu", "--json"], "InputError"),
        (["launch", "+experiment=mine", "resources.nodes=none", "--json"], "ConfigError"),
        (["launch", "+experiment=mine", "resources.nodes=none", "launch.json=true"], "ConfigError"),
        (["launch", "+experiment=mine", "--json", "--backend", "sbatch"], "SlurmMissing"),
        (["run", "--json"], "InputError"),
        (["import", "gone.sbatch", "--json"], "InputError"),
        (["init", "train.py", "--json"], "InputError"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else words,
)
def test_errors_before_an_answer(
    words: list[str], kind: str, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("SCRATCH", "/scratch")
    assert main(words) == 2
    answer = json.loads(capsys.readouterr().out)
    assert (answer["command"], answer["data"]) == (words[0], None)
    assert {error["type"] for error in answer["errors"]} == {kind}


def test_the_config_may_ask_for_it(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SCRATCH", "/scratch")
    experiment = project / "conf" / "experiment" / "mine.yaml"
    experiment.write_text(experiment.read_text().replace("data:", "launch: {json: true, backend: local}\ndata:"))
    assert main(["launch", "+experiment=mine", "launch.folder=/proc/runs"]) == 2
    assert json.loads(capsys.readouterr().out)["errors"][0]["type"] == "FolderError"


def test_words_of_the_command_do_not_ask_for_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--bogus", "--", "python", "train.py", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_a_warning_is_in_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--local", "--dry-run", "--json", "--set", "notify.webhook=https://example.org/hook/k3y", "--", "true"]
    assert main(["run", *words]) == 0
    told = capsys.readouterr()
    (warning,) = json.loads(told.out)["warnings"]
    assert "notify.webhook" in warning
    assert f"slurmopt: {warning}\n" in told.err
    assert data_of(told.out)["runs"] == 1


def test_an_answer_with_an_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--local", "--no-wait", "--name", "long", "--", "sleep", "100"]) == 0
    capsys.readouterr()
    try:
        assert main(["wait", "long", "--timeout", "1s", "--json"]) == 124
        told = capsys.readouterr().out
        assert data_of(told)[0]["state"] in ("pending", "running")
        assert json.loads(told)["errors"] == [
            {"type": "TimeoutError", "message": errors_of(told)[0]},
        ]
    finally:
        main(["cancel", "long"])


def test_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: list[str]) -> int:
        signal.raise_signal(signal.SIGINT)
        return 0

    assert guarded(interrupted, ["--json"], "wait") == 130
    assert errors_of(capsys.readouterr().out) == ["interrupted"]


def test_numbers_that_json_does_not_have() -> None:
    assert command_output.dumped({"loss": [float("nan"), 1.0, float("inf")]}) == '{"loss": [null, 1.0, null]}'


def test_nobody_reads_it(project: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "slurmopt", "status", "gone", "--json"]
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr.startswith("slurmopt: error: ")
    assert done.stderr.count("\n") == 1
