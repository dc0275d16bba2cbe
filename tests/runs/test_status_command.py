"""`slurmopt status` and `slurmopt list`, as they are typed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of

from slurmopt.cli import main
from slurmopt.commands import status as status_command
from slurmopt.run_folder.outcome import Outcome
from slurmopt.runs.all_runs import all_runs
from slurmopt.runs.status.query import gather
from slurmopt.runs.status.view import rows
from slurmopt.slurm import client


def printed(capsys, *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


def training(make_run):
    """At step 150 of 500 after fifty steps in ten seconds."""
    made = make_run().submitted().attempt(rank_0="step 150\n")
    now = time.time()
    made.beat(step=150, total_steps=500, first_step=100, first_step_time=now - 10, metrics={"val_loss": 1.25})
    return made


def test_progress_of_a_training(make_run, capsys) -> None:
    training(make_run)
    (status,) = data_of(printed(capsys, "status", "--json"))
    documented = str(status_command.__doc__).split()
    assert all(key in documented or f"`{key}`" in documented for key in status)
    assert (status["state"], status["step"], status["total_steps"]) == ("running", 150, 500)
    assert status["steps_per_second"] == pytest.approx(5, rel=0.2)
    assert status["eta_seconds"] == pytest.approx(70, rel=0.2)
    assert status["metrics"] == {"val_loss": 1.25}
    assert status["nodes"] == "node[1-2]"
    page = printed(capsys, "status")
    for text in (
        "running",
        "step 150/500",
        "steps/s",
        "left",
        "val_loss 1.25",
        "logs mine/20261121-120000-aaaa --follow",
    ):
        assert text in page


def test_what_the_batches_of_a_training_cost(make_run, capsys) -> None:
    made = make_run().submitted().attempt(rank_0="step 150\n")
    counted = {"steps": 100.0, "loader_batches": 100.0, "loader_fetch": 2.5, "loader_fetch_cpu": 0.1}
    made.beat(step=150, spent={"running": 1.0, "input": 0.5}, counted=counted)
    (status,) = data_of(printed(capsys, "status", "--json"))
    assert (status["loader"]["wait"], status["loader"]["fetch"]) == (pytest.approx(0.005), pytest.approx(0.025))
    line = next(line for line in printed(capsys, "status").splitlines() if line.startswith("  input "))
    assert "a step waits 5 ms and takes 10 ms without; a batch takes a worker 25 ms: 25 ms in the dataset" in line
    assert line.endswith("; about 4 workers hide it (slurmopt tune loader)")


@pytest.mark.parametrize(("phase", "still"), [("running", True), ("evaluation", False)])
def test_a_training_that_makes_no_steps_is_told_and_not_when_it_would_be_done(
    make_run, capsys, phase: str, still: bool
) -> None:
    made, now = training(make_run), time.time()
    at = {"first_step": 100, "first_step_time": now - 50, "step_time": now - 40}
    made.beat(step=150, total_steps=500, phase=phase, **at)
    page = printed(capsys, "status")
    assert ("step 150/500, no step for 40s" in page) == still
    assert ("left" in page) != still


def test_a_loss_of_nan_is_shown_and_json_stays_json(make_run, capsys) -> None:
    make_run().submitted().attempt().beat(step=1, metrics={"loss": float("nan"), "top": float("inf")})
    assert "loss nan" in printed(capsys, "status")
    assert data_of(printed(capsys, "status", "--json"))[0]["metrics"] == {"loss": None, "top": None}


def test_ranks_that_fell_silent_are_named(make_run, capsys) -> None:
    make_run().submitted().attempt().beat(rank=0, step=1).beat(rank=1, step=1, ago=3000)
    assert "silent for over 1m00s: rank 1" in printed(capsys, "status")


@pytest.mark.parametrize("stored", [True, False])
def test_a_rank_that_beats_every_90_seconds_is_shown_as_running(make_run, capsys, stored: bool) -> None:
    made = make_run().submitted().attempt()
    if stored:  # heartbeats of earlier versions do not name their interval
        made.folder.config.write_text("monitor: {heartbeat: 90s}\n")
    interval = None if stored else 90.0
    made.beat(rank=0, ago=100, interval=interval).beat(rank=1, ago=290, interval=interval)
    page = printed(capsys, "status")
    assert "running" in page
    assert "silent" not in page
    made.beat(rank=0, ago=310, interval=interval).beat(rank=1, interval=interval)
    page = printed(capsys, "status")
    assert "unknown" in page
    assert "no fresh heartbeat" in page


@pytest.mark.parametrize("interval", ["ninety", -90, 1e999, True])
def test_an_interval_that_is_no_time_counts_as_the_default(make_run, capsys, interval: Any) -> None:
    made = make_run().submitted().attempt().beat(ago=20, interval=interval)
    made.folder.config.write_text("monitor: {heartbeat: often}\n")
    assert "running" in printed(capsys, "status")
    made.beat(ago=100, interval=interval)
    assert "unknown" in printed(capsys, "status")


def test_a_failure_says_why_and_what_to_do(make_run, capsys) -> None:
    failed = Outcome("user error", time.time(), 1, "ValueError: no").as_dict()
    made = make_run().submitted().attempt(rank_0="x\n").beat(step=9, outcome=failed)
    made.end("user error", exit_code=1, rank=0, error="ValueError: no")
    page = printed(capsys, "status", "mine")
    assert page.splitlines()[1:3] == ["  error      ValueError: no", "  where      rank 0 on node1"]
    assert "slurmopt logs mine/20261121-120000-aaaa --errors" in page
    assert "slurmopt retry mine/20261121-120000-aaaa\n" in page + "\n"


def test_a_table_of_many_keeps_to_the_terminals_width(make_run, capsys) -> None:
    training(make_run)
    make_run("a-very-long-name-" * 5, "20261121-120001-bbbb").submitted("8").attempt(job="8").end(
        "user error", error="e" * 300
    )
    table = printed(capsys, "status", "--all")
    assert len(table.splitlines()) == 3
    folders = all_runs(Path("runs"))
    assert max(map(len, rows(gather(folders)[0], 80).splitlines())) <= 80


def test_a_finished_run_needs_only_its_journal(make_run, capsys) -> None:
    made = make_run().submitted().attempt().end("finished")
    made.folder.logs.joinpath("attempt-0").rmdir()
    for folder in (made.folder.logs, made.folder.heartbeats, made.folder.checkpoints):
        folder.rmdir()
    assert "finished" in printed(capsys, "status", "--all")
    assert "finished" in printed(capsys, "status")


def test_a_thousand_runs_ask_slurm_at_most_once(make_run, capsys, monkeypatch) -> None:
    calls = []
    real = client.ask
    monkeypatch.setattr(client, "ask", lambda argv, *rest: calls.append(argv[0]) or real(argv, *rest))
    for number in range(1000):
        made = make_run(f"name{number % 7}", f"{number:06d}").submitted(str(number + 1))
        if number % 10:
            made.attempt(job=str(number + 1)).end("finished")
    states = [run["state"] for run in data_of(printed(capsys, "status", "--all", "--json"))]
    assert len(states) == 1000
    assert states.count("finished") == 900
    assert calls == ["squeue"]
    assert len(data_of(printed(capsys, "list", "--json"))) == 1000


def test_runs_that_ended_or_are_local_ask_slurm_nothing(make_run, capsys) -> None:
    make_run().submitted().attempt().end("finished")
    make_run("local").submitted("local-1", backend="local", host="login9", pid=1, pid_started=1)
    assert main(["status", "--all"]) == 0
    assert "Slurm" not in capsys.readouterr().err


def test_when_slurm_cannot_be_asked_it_is_said_on_stderr(make_run, capsys) -> None:
    make_run().submitted().attempt().beat(step=1)
    assert main(["status", "--json"]) == 0
    out, err = capsys.readouterr()
    assert data_of(out)[0]["state"] == "running"
    assert "Slurm was not asked" in err
    assert err.count("\n") == 1


def test_list_shows_the_newest_first(make_run, capsys) -> None:
    make_run("old", "1").submitted().attempt().end("finished")
    make_run("new", "2")
    assert [line.split()[:3] for line in printed(capsys, "list").splitlines()[1:]] == [
        ["new", "2", "unsubmitted"],
        ["old", "1", "finished"],
    ]


def test_list_of_nothing_says_how_to_begin(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["list"]) == 0
    assert "slurmopt launch" in capsys.readouterr().err
    assert data_of(printed(capsys, "list", "--json")) == []


def test_folder_is_taken_from_the_option_or_the_environment(make_run, capsys, monkeypatch, tmp_path) -> None:
    make_run().submitted().attempt().end("finished")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert "finished" in printed(capsys, "status", "--folder", str(tmp_path / "runs"))
    monkeypatch.setenv("SLURMOPT_FOLDER", "../runs")
    assert "finished" in printed(capsys, "status")


def test_watch_ends_when_all_have_ended(make_run, capsys) -> None:
    make_run().submitted().attempt().end("finished")
    assert "finished" in printed(capsys, "status", "--watch")


@pytest.mark.parametrize("how", ["cancel", "tend"])
def test_the_end_of_a_run_whose_batch_shell_wrote_no_page(make_run, capsys, how: str) -> None:
    """Status names the command that makes one, until there is one of the latest attempt."""
    made = make_run().submitted().attempt()
    command = f"report     slurmopt report mine/{made.folder.id} --html"
    made.beat()
    assert "report  " not in printed(capsys, "status"), "it still runs"
    if how == "cancel":
        made.event("cancel", job="7").end("cancelled", cause="cancelled")
    else:
        made.end("killed", cause="node failure", next=None, by="tend")
    assert command in printed(capsys, "status")
    made.folder.report.write_text("of an earlier end")
    os.utime(made.folder.report, (time.time() - 3600,) * 2)
    assert command in printed(capsys, "status")
    os.utime(made.folder.report)
    assert f"report     {made.folder.report}" in printed(capsys, "status")
