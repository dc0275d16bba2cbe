"""`slurmopt retry` on this machine: what it changes, what it refuses, and that it submits once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from private_cluster import clean_environment, wait_until

from slurmopt.cli import main
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.find import find

FAILS = "task.command=[bash,-c,'pwd; echo $WORD > seen; sleep $(cat nap); exit 3']"
"""Sleeps first where `nap` says so, and leaves what it saw."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nap").write_text("0\n")
    monkeypatch.setenv("SECRET", "hunter2")
    yield tmp_path
    for path in (tmp_path / "runs").glob("*/*"):
        main(["cancel", str(path)])


def launch(name: str, *words: str) -> RunFolder:
    """A run that has ended."""
    words = ("launch.backend=local", f"launch.name={name}", "launch.wait=true", FAILS, *words)
    command = [sys.executable, "-m", "slurmopt.launch", *words]
    subprocess.run(command, capture_output=True, timeout=120, env={**clean_environment(), "SECRET": "hunter2"})
    run = find(name, Path("runs"))
    assert state(run) != "running"
    return run


def state(run: RunFolder) -> str:
    from slurmopt.runs.status.query import gather

    return gather([run], fresh=True)[0][0].state


def until_failed(run: RunFolder, attempt: int) -> None:
    def ended() -> bool:
        return any(one["event"] == "end" and one["attempt"] == attempt for one in events.read(run.events))

    wait_until(ended, 60, f"attempt {attempt} of {run.name} has ended")


def left(run: RunFolder) -> dict[str, bytes]:
    """What a refused retry must not touch."""
    return {path.name: path.read_bytes() for path in (run.config, run.script, run.events, run.overrides)}


def stored(run: RunFolder) -> dict[str, Any]:
    from omegaconf import OmegaConf

    config = OmegaConf.to_container(OmegaConf.load(run.config), resolve=False)
    assert isinstance(config, dict)
    return config


def test_the_same_run_goes_on_with_changed_needs(folder: Path, capsys, monkeypatch) -> None:
    words = ("resources.memory=1G", "resources.time=10m", "+key=${oc.env:SECRET}", "+environment.variables.WORD=a")
    run = launch("mine", *words)
    assert (folder / "seen").read_text() == "a\n"
    before = stored(run)
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    retry = ["retry", str(run.path), "environment.variables.WORD=b", "--more-memory", "1.5", "--more-time", "2"]
    assert main(retry) == 0
    out = capsys.readouterr().out
    assert out.startswith("mine/")
    assert "submitted as job local-" in out
    assert "resources.memory 1G → 1536M" in out
    until_failed(run, 1)
    assert (folder / "seen").read_text() == "b\n"  # where the launch was typed, not where the retry was
    after = stored(run)
    assert (after["resources"]["memory"], after["resources"]["time"]) == ("1536M", "00:20:00")
    assert after["key"] == "${oc.env:SECRET}"
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"resources", "environment"}
    assert b"hunter2" not in b"".join(left(run).values())
    assert "#SBATCH --mem=1536M" in run.script.read_text()
    (event,) = (one for one in events.read(run.events) if one["event"] == "retry")
    assert event["changes"]["environment.variables.WORD"] == ["a", "b"]
    assert [path.name for path in folder.glob("runs/mine/*")] == [run.id]


REFUSED = [
    (["resources.nod=2"], "resources.nod: unknown key (did you mean 'nodes'?)"),
    (["wrod=2"], "wrod: no such key (did you mean 'word'?)"),
    (["resources.nodes=none"], "resources.nodes: 'none' is not valid"),
    (["resources.memory=lots"], "resources.memory: not a memory size"),
    (["resources=big"], "picks a config, which only a launch can"),
    (["word=1,2"], "word: 'word=1,2' has several values"),
    (["word=[1"], "'word=[1' is not an override"),
    (["launch.name=other"], "launch.name: cannot be changed by a retry: the run keeps its name"),
    (["launch.folder=elsewhere"], "launch.folder: cannot be changed"),
    (["launch.id=x"], "launch.id: cannot be changed"),
    (["launch.run=x"], "launch.run: "),
    (["launch.backend=sbatch"], "launch.backend: cannot be changed"),
    (["environment.snapshot=copy"], "environment.snapshot: cannot be changed"),
    (["task._target_=os.getcwd", "task.command=null"], "task: a function stays a function"),
    (["restart.budgets.hang=-1"], "restart.budgets.hang: -1 is too few"),
    (["--more-memory", "1.5"], "resources.memory: is not set"),
    (["--more-memory", "0.5"], "--more-memory: '0.5' is not valid"),
    (["--more-time", "2", "resources.time=1h"], "resources.time: is set by an override and multiplied too"),
]


def test_what_is_wrong_changes_nothing(folder: Path, capsys) -> None:
    run = launch("mine", "+word=1", "resources.time=10m")
    before = left(run)
    for words, message in REFUSED:
        assert main(["retry", "mine", *words]) == 2, words
        error = capsys.readouterr().err
        assert message in error, error
        assert error.count("slurmopt: error: ") == 1
        assert left(run) == before, words
    assert main(["retry", "mine", "resources.time=1h", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert "#SBATCH --time=01:00:00" in out
    assert out.startswith("#!/bin/bash\n")
    assert "nothing changed or submitted" in err
    assert left(run) == before


def test_a_run_that_is_alive_is_refused_and_two_retries_at_once_submit_one_job(folder: Path, capsys) -> None:
    run = launch("mine")
    (folder / "nap").write_text("300\n")
    command = [sys.executable, "-m", "slurmopt", "retry", "mine"]
    both = [subprocess.Popen(command, env=clean_environment(), stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate(timeout=180)[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 2], errors
    assert len([one for one in events.read(run.events) if one["event"] == "submitted"]) == 2  # the launch's, and one
    wait_until(lambda: state(run) == "running", 60, "it runs")
    before = left(run)
    assert main(["retry", "mine", "--dry-run"]) == 2
    said = f"slurmopt: error: mine/{run.id} is running; first: slurmopt cancel mine/{run.id}\n"
    assert capsys.readouterr().err == said  # which names the run once
    assert left(run)["config.yaml"] == before["config.yaml"]


def test_of_several_runs_those_that_failed(folder: Path, capsys) -> None:
    first, second, third = launch("first"), launch("second", "+only=1"), launch("third", "task.command=[true]")
    assert state(third) == "finished"
    assert main(["retry", "--failed", "only=2", "--json"]) == 2
    answer = data_of(capsys.readouterr().out)
    assert [(one["name"], one["job"] is None) for one in answer] == [("first", True), ("second", False)]
    assert "no such key" in answer[0]["error"]
    until_failed(second, 1)
    assert main(["retry", "third", "second", "--failed", "--dry-run"]) == 0
    assert "1 of 2 runs have failed" in capsys.readouterr().err
    assert first.attempts() == [0]


def test_a_run_that_has_finished_is_retried_only_where_that_is_typed(folder: Path, capsys) -> None:
    run = launch("mine", "task.command=[true]", "resources.time=10m")
    before = left(run)
    for words in ([], ["--more-time", "2"], ["--dry-run"]):
        assert main(["retry", "mine", *words]) == 2
        assert capsys.readouterr().err == (
            f"slurmopt: error: mine/{run.id} has finished, so there is nothing to retry; to let it go on all the same, "
            "add --again\n"
        )
    assert left(run) == before
    assert main(["retry", "mine", "--finished", "--failed"]) == 2
    assert main(["retry", "mine", "--finished", "--more-time", "2"]) == 0
    until_failed(run, 1)
    assert stored(run)["resources"]["time"] == "00:20:00"


def test_launch_run_counts_budgets_anew_too(folder: Path) -> None:
    run = launch("mine")
    again = [sys.executable, "-m", "slurmopt.launch", "launch.run=mine"]
    subprocess.run(again, capture_output=True, timeout=120, env=clean_environment())
    assert [one["changes"] for one in events.read(run.events) if one["event"] == "retry"] == [{}]
    assert run.attempts() == [0, 1]


def test_a_run_of_before_its_launch_noted_where_it_was_typed(folder: Path, capsys) -> None:
    run = launch("mine")
    text = run.events.read_text().replace(f', "cwd": "{folder}"', "")
    run.events.write_text(text)
    assert main(["retry", "mine"]) == 2
    assert "add environment.workdir=DIR" in capsys.readouterr().err
    assert main(["retry", "mine", "environment.workdir=."]) == 0
    until_failed(run, 1)
    assert run.rank_log(1, 0).read_text() == f"{os.getcwd()}\n"
    assert stored(run)["environment"]["workdir"] == str(folder)


def test_a_script_that_is_no_utf_8_is_kept_or_replaced_whole(folder: Path, capsys) -> None:
    run = launch("mine")
    with run.script.open("ab") as file:
        file.write(b"# caf\xe9\n")
    again = [sys.executable, "-m", "slurmopt.launch", "launch.run=mine"]
    subprocess.run(again, capture_output=True, timeout=120, env=clean_environment())
    assert run.attempts() == [0, 1]
    assert run.script.read_bytes().endswith(b"# caf\xe9\n")
    assert main(["retry", "mine"]) == 0
    until_failed(run, 2)
    assert b"\xe9" not in run.script.read_bytes()
