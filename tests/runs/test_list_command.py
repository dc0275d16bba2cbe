"""`slurmopt list`: columns, filters, colours, and the runs of other folders."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of

from slurmopt.cli import main
from slurmopt.run_folder import events
from slurmopt.runs import index
from slurmopt.runs.colour import wanted

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def printed(capsys: Any, *words: str) -> str:
    assert main(list(words)) == 0
    return str(capsys.readouterr().out)


def on_terminal(columns: int, *words: str, **env: str) -> str:
    """What `slurmopt …` prints on a terminal of so many columns."""
    parent, child = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", **env}
    argv = [sys.executable, "-m", "slurmopt", *words]
    process = subprocess.Popen(argv, stdout=child, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment)
    os.close(child)
    shown = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:  # the process has closed its end
            break
        if not piece:
            break
        shown += piece
    os.close(parent)
    assert process.wait(30) == 0, process.stderr and process.stderr.read()
    return shown.decode().replace("\r\n", "\n")


@pytest.fixture
def three(make_run) -> None:
    error = {"error": "ValueError: no samples", "cause": "user error", "rank": 0, "next": None}
    made = make_run("llama-7b", "20261121-120000-aaaa").submitted("101").attempt(job="101")
    made.beat(step=40, total_steps=100, metrics={"loss": 0.5}).end("user error", **error)
    made = make_run("llama-13b", "20261121-120001-bbbb").submitted("102").attempt(job="102")
    made.beat(step=100, total_steps=100, metrics={"loss": 0.25, "lr": 0.001}).end("finished")
    make_run("other", "20261121-120002-cccc")


def test_an_ended_run_keeps_its_job_progress_and_metrics(three, capsys) -> None:
    lines = printed(capsys, "list").splitlines()
    assert lines[0].split() == ["NAME", "ID", "STATE", "JOB", "PROGRESS", "LAUNCHED", "METRICS", "WHY"]
    finished = next(line for line in lines if "llama-13b" in line)
    assert re.search(r"finished\s+102\s+100/100\s+\S+ ago\s+loss 0.25  lr 0.001", finished)
    failed = next(line for line in lines if "llama-7b" in line)
    assert re.search(r"loss 0.5 +ValueError: no samples$", failed)
    shown = {run["name"]: run for run in data_of(printed(capsys, "list", "--json"))}
    run = shown["llama-13b"]
    assert (run["job"], run["jobs"], run["step"], run["metrics"]) == ("102", ["102"], 100, {"loss": 0.25, "lr": 0.001})
    assert (shown["other"]["job"], shown["other"]["metrics"]) == (None, {})


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--state", "failed"], ["llama-7b"]),
        (["--state", "failed, Finished"], ["llama-13b", "llama-7b"]),
        (["--name", "llama-*"], ["llama-13b", "llama-7b"]),
        (["--name", "llama"], []),
        (["--since", "1h"], ["other", "llama-13b", "llama-7b"]),
        (["--sort", "name"], ["llama-13b", "llama-7b", "other"]),
        (["--sort", "loss"], ["llama-13b", "llama-7b", "other"]),
        (["--sort", "job"], ["other", "llama-7b", "llama-13b"]),
        (["--sort", "progress"], ["llama-13b", "llama-7b", "other"]),
        (["--sort", "state"], ["other", "llama-13b", "llama-7b"]),
    ],
)
def test_filters_and_orders(three, capsys, words, names) -> None:
    assert [run["name"] for run in data_of(printed(capsys, "list", "--json", *words))] == names


def test_since_leaves_out_what_is_older(make_run, capsys) -> None:
    old, _ = make_run("old", "1").folder, make_run("new", "2")
    old.events.unlink()
    events.append(old.events, "created", name="old", id="1")
    text = re.sub(r'"time": [0-9.]+', f'"time": {time.time() - 3 * 86400}', old.events.read_text())
    old.events.write_text(text)
    assert [run["name"] for run in data_of(printed(capsys, "list", "--json", "--since", "2d"))] == ["new"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--state", "faild"], "no state 'faild' (did you mean 'failed'?); valid: unsubmitted, pending"),
        (["--state", ","], "--state: no state; valid:"),
        (["--since", "soon"], "--since: not a time: 'soon'"),
        (["--sort", "los"], "no 'los' to sort by (did you mean 'loss'?); valid: launched, name"),
        (["--color", "red"], "--color: invalid choice: 'red'"),
        (["--everywhere", "--folder", "runs"], "--everywhere and --folder exclude each other"),
    ],
)
def test_bad_words_are_one_line(three, capsys, words, said) -> None:
    assert main(["list", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_nothing_that_matches_is_said(three, capsys) -> None:
    assert main(["list", "--state", "killed"]) == 0
    assert capsys.readouterr() == ("", "no runs match; `slurmopt list` shows all\n")


@pytest.mark.parametrize("columns", [200, 120, 80, 40, 20, 8, 1])
def test_no_line_is_wider_than_the_terminal(three, columns) -> None:
    shown = on_terminal(columns, "list")
    lines = [ESCAPE.sub("", line) for line in shown.splitlines()]
    assert len(lines) == 4
    assert max(map(len, lines)) <= max(columns, 14)
    assert all("finished" in line or "failed" in line or "unsubmitted" in line for line in lines[1:])
    assert ("METRICS" in lines[0], "METRICS, WHY" in lines[0]) == (columns >= 80, columns in (80, 120))
    assert ("20261121-120001-bbbb" in shown) == (columns >= 80)


def test_colours_are_for_terminals_alone(three, capsys, monkeypatch) -> None:
    assert "\x1b[31mfailed\x1b[0m" in on_terminal(100, "list")
    assert "\x1b[" not in on_terminal(100, "list", NO_COLOR="1")
    assert "\x1b[" not in on_terminal(100, "list", TERM="dumb")
    assert "\x1b[" not in on_terminal(100, "list", "--color=never", FORCE_COLOR="1")
    assert "\x1b[" not in printed(capsys, "list")
    assert "\x1b[32mfinished\x1b[0m" in printed(capsys, "list", "--color=always")
    assert "\x1b[31mfailed\x1b[0m" in printed(capsys, "status", "llama-7b", "--color=always")
    assert "\x1b[31mfailed\x1b[0m" in printed(capsys, "status", "--all", "--color=always")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert wanted("auto", sys.stdout)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wanted("auto", sys.stdout)


@pytest.fixture
def away(make_run, tmp_path, monkeypatch) -> Path:
    """A folder without runs, after launches elsewhere; the folder of the runs."""
    first = make_run("mine", "20261121-120000-aaaa").submitted("4711")
    index.note(first.folder)
    (there := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(there)
    return first.folder.path.parents[1]


@pytest.mark.parametrize("name", ["mine", "mine/20261121-120000-aaaa", "20261121-12", "4711"])
def test_a_run_is_found_from_another_folder(away, capsys, name) -> None:
    assert main(["status", name, "--json"]) == 0
    out, err = capsys.readouterr()
    assert data_of(out)[0]["folder"] == f"{away}/mine/20261121-120000-aaaa"
    assert f"slurmopt: mine/20261121-120000-aaaa is in {away}\n" in err


def test_a_folder_that_was_given_is_the_only_one(away, capsys) -> None:
    assert main(["status", "mine", "--folder", "runs"]) == 2
    assert main(["status", "mines"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "list --everywhere" not in lines[0]
    assert "`slurmopt list --everywhere` shows those in your other folders" in lines[1]


def test_list_outside_of_a_project_shows_all_folders(away, capsys) -> None:
    header, line = printed(capsys, "list").splitlines()
    assert "FOLDER" in header
    assert str(away) in line
    Path("runs").mkdir()
    assert main(["list"]) == 0
    assert "no runs in 'runs'" in capsys.readouterr().err
    assert [run["name"] for run in data_of(printed(capsys, "list", "--everywhere", "--json"))] == ["mine"]


def test_runs_of_others_are_not_found_elsewhere(away, capsys) -> None:
    if os.geteuid():
        pytest.skip("only root gives files away")
    os.chown(away / "mine" / "20261121-120000-aaaa", 12345, 12345)
    assert main(["status", "mine"]) == 2
    assert data_of(printed(capsys, "list", "--everywhere", "--json")) == []


def test_a_removed_folder_drops_out(away, capsys) -> None:
    shutil.rmtree(away)
    assert main(["list"]) == 0
    assert "no runs in 'runs'; start one" in capsys.readouterr().err


@pytest.mark.parametrize(("output", "status", "said"), [(">&-", 0, 0), ("<&- >&- 2>&-", 0, 0), ("> /dev/full", 1, 1)])
def test_an_output_that_is_closed_or_full_is_no_traceback(tmp_path: Path, output: str, status: int, said: int) -> None:
    done = subprocess.run(
        ["bash", "-c", f'"$1" -m slurmopt list --json {output}', "list", sys.executable],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (status, said), done.stderr
