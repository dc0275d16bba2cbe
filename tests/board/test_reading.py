"""The rows of the board from real folders: what changes is read, what has ended is not read again."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import board_runs
import pytest
from board_runs import BoardRun

from slurmopt.board.rows.folders import Folders
from slurmopt.board.rows.reading import Reading
from slurmopt.board.rows.row import GONE, UNREAD, Row
from slurmopt.run_folder.layout import RunFolder
from slurmopt.slurm.cluster import cache


def looked(reading: Reading, shown: list[Path] | None = None) -> dict[str, Row]:
    """The rows by name, after a look with these on the screen, or all."""
    on_screen = list(reading.rows) if shown is None else shown
    list(reading.look(frozenset(on_screen)))
    return {row.name: row for row in reading.rows.values()}


@pytest.fixture
def reading(runs: board_runs.Board) -> Reading:
    return Reading(Folders([runs.base]))


def test_states_progress_and_what_was_measured(runs: board_runs.Board, reading: Reading) -> None:
    rows = looked(reading)
    assert {name: row.state for name, row in rows.items() if row.state != "finished"} == {
        "llama-8b-pretrain": "running", "vit-l16-imagenet": "running", "whisper-medium-de": "running",
        "resnet50-baseline": "pending", "clip-vit-b32": "failed", "t5-summarize": "killed", "bert-probe": "cancelled",
    }  # fmt: skip
    llama = rows["llama-8b-pretrain"]
    assert (llama.step, llama.total, llama.nodes, llama.job) == (41_000, 100_000, "node[1-8]", "481516")
    assert llama.metric == ("loss", llama.metrics["loss"])
    assert llama.rate == pytest.approx(41_000 / (9 * 3600 - 700), rel=0.01)
    assert llama.left == pytest.approx(59_000 / llama.rate, rel=0.01)
    assert len(llama.gpu) == 24
    assert all(value is not None and 95 < value < 99 for value in llama.gpu)
    assert rows["whisper-medium-de"].attempt == 1
    assert "RuntimeError: shape" in rows["clip-vit-b32"].detail
    assert "waiting for nodes" in rows["resnet50-baseline"].detail
    assert rows["convnext-s"].metrics == {"val_loss": 0.31}
    assert reading.problem == ""


def test_the_first_picture_needs_neither_slurm_nor_all_runs(runs: board_runs.Board, reading: Reading) -> None:
    reading.first(4)
    rows = sorted(reading.rows.values(), key=lambda row: row.id, reverse=True)
    assert [row.state for row in rows[:4]] == ["pending", "failed", "running", "running"]
    assert {row.state for row in rows[4:]} == {UNREAD}


def test_the_first_look_settles_what_only_slurm_knows(runs: board_runs.Board, reading: Reading) -> None:
    runs.pending.event(600, "cancel", job=runs.pending.job)
    board_runs.answer(*(run.entry() for run in (runs.llama, runs.vit, runs.whisper)))
    reading.first(20)
    assert {row.name for row in reading.rows.values() if row.state == UNREAD} == {"resnet50-baseline"}
    assert looked(reading, shown=[])["resnet50-baseline"].state == "cancelled"


def test_a_curve_begins_with_what_the_rank_has_kept(runs: board_runs.Board, reading: Reading) -> None:
    path = runs.llama.folder.heartbeat(0, 0)
    beat = json.loads(path.read_text())
    beat["history"] = {
        "loss": [5.0, 4.0, float("nan"), "odd", None, float(f"{beat['metrics']['loss']:.6g}")],
        "other": 7,
    }
    path.write_text(json.dumps(beat))
    row = looked(reading)["llama-8b-pretrain"]
    assert [value for value in row.curve if value == value] == [5.0, 4.0, beat["metrics"]["loss"]]
    assert len(row.curve) == 4


def test_a_new_step_a_new_run_and_an_end_are_seen(runs: board_runs.Board, reading: Reading) -> None:
    looked(reading)
    runs.beat(1)
    BoardRun(runs.base, "fresh", "20991231-000000-aaaa", 1.0)
    runs.vit.end(9000, "finished", step=9360)
    rows = looked(reading)
    assert rows["llama-8b-pretrain"].step == 41_300
    assert rows["llama-8b-pretrain"].curve[-1] == rows["llama-8b-pretrain"].metrics["loss"]
    assert len(rows["llama-8b-pretrain"].curve) == 2
    assert rows["fresh"].state == "unsubmitted"
    assert rows["vit-l16-imagenet"].state == "finished"
    assert rows["vit-l16-imagenet"].gpu == ()


def test_a_run_that_is_retried_comes_back(runs: board_runs.Board, reading: Reading) -> None:
    looked(reading)
    runs.failed.submitted("481999", after=1.1 * 3600)
    board_runs.answer(runs.failed.entry("PENDING", "Priority"))
    for _ in range(20):  # one of so many looks comes to it, though it is not on the screen
        rows = looked(reading, [])
    assert rows["clip-vit-b32"].state == "pending"


def test_ended_runs_are_not_read_again(
    runs: board_runs.Board, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked(reading)
    opened: list[str] = []
    really = os.open

    def spy(path: Any, *args: Any, **fields: Any) -> int:
        opened.append(str(path))
        return really(path, *args, **fields)

    monkeypatch.setattr(os, "open", spy)
    for _ in range(25):
        looked(reading)
    ended = [run.folder.path for run in (*runs.finished, runs.failed, runs.killed, runs.cancelled)]
    assert [path for path in opened if any(path.startswith(str(folder)) for folder in ended)] == []


def test_a_run_that_vanishes_says_so_and_comes_back(runs: board_runs.Board, reading: Reading, tmp_path: Path) -> None:
    looked(reading)
    for run in (runs.llama, runs.finished[0]):
        os.rename(run.folder.path, tmp_path / run.folder.id)
    rows = looked(reading)
    assert {rows[name].state for name in ("llama-8b-pretrain", "convnext-s")} == {GONE}
    assert rows["llama-8b-pretrain"].detail == "its folder was removed or renamed; job 481516 may go on"
    assert rows["llama-8b-pretrain"].left is None
    os.rename(tmp_path / runs.llama.folder.id, runs.llama.folder.path)
    assert looked(reading)["llama-8b-pretrain"].state == "running"


def test_a_journal_that_vanishes_too(runs: board_runs.Board, reading: Reading) -> None:
    looked(reading)
    runs.llama.folder.events.unlink()
    looked(reading)
    assert looked(reading)["llama-8b-pretrain"].state in (GONE, UNREAD)


def test_the_whole_folder_may_vanish(runs: board_runs.Board, reading: Reading) -> None:
    looked(reading)
    shutil.rmtree(runs.base)
    assert {row.state for row in looked(reading).values()} == {GONE}


def test_damaged_files_are_told_of(runs: board_runs.Board, reading: Reading) -> None:
    runs.llama.folder.events.unlink()
    runs.llama.folder.events.mkdir()
    runs.vit.folder.heartbeat(0, 0).write_text("[" * 100_000)
    series = runs.whisper.folder.recent_series(1, "node7")
    series.write_bytes(series.read_bytes()[:-20] + b"\x00\xff\n[1]\n{}\n[[[\n")
    rows = looked(reading)
    assert "cannot read events.jsonl" in rows["llama-8b-pretrain"].detail
    assert rows["vit-l16-imagenet"].step is None
    assert rows["whisper-medium-de"].state == "running"


def test_an_unreachable_slurm_is_told_of(runs: board_runs.Board, reading: Reading) -> None:
    cache.write("queue", {"error": "SlurmUnreachable", "message": "slurmctld does not answer"}, 0.0)
    place = cache.place("queue")
    assert place is not None
    place.write_text(place.read_text().replace('"time": 0.0', f'"time": {board_runs.time.time()}'))
    rows = looked(reading)
    assert reading.problem == "slurmctld does not answer"
    assert rows["llama-8b-pretrain"].state == "running"
    runs.answer()
    reading._asked_at = float("-inf")
    assert looked(reading)["resnet50-baseline"].state == "pending"
    assert reading.problem == ""


def test_without_runs_in_slurm_nobody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    BoardRun(tmp_path / "runs", "done", "20260101-000000-aaaa").submitted("7").attempt().end(90, "finished", next=None)
    reading = Reading(Folders([tmp_path / "runs"]))
    assert looked(reading)["done"].state == "finished"
    assert reading.problem == ""


def test_folders_elsewhere_show_only_own_runs(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("NOT TESTED: giving files to another user needs root")
    for name in ("mine", "theirs"):
        BoardRun(tmp_path / "elsewhere", name, "20260101-000000-aaaa")
    for path in (tmp_path / "elsewhere" / "theirs").rglob("*"):
        os.chown(path, 65534, 65534)
    BoardRun(tmp_path / "runs", "here", "20260101-000000-aaaa")
    reading = Reading(Folders([tmp_path / "runs"], [tmp_path / "elsewhere"]))
    assert sorted(looked(reading)) == ["here", "mine"]
    shared = Reading(Folders([tmp_path / "elsewhere"]))
    assert looked(shared)["theirs"].owner == "nobody"


def test_a_folder_without_runs(tmp_path: Path) -> None:
    assert looked(Reading(Folders([tmp_path / "none"]))) == {}
    (tmp_path / "runs").write_text("a file")
    assert looked(Reading(Folders([tmp_path / "runs"]))) == {}


def test_a_sweep_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "grid" / "20260101-000000-aaaa")
    folder.make()
    folder.events.write_text('{"time": 1.0, "event": "created", "points": 3}\n')
    (folder.path / "points.json").write_text("{}")
    (folder.path / "cancelled").write_text("[red]no points[/red]")
    reading = Reading(Folders([tmp_path / "runs"]))
    row = looked(reading)["grid"]
    assert (row.is_sweep, row.state) == (True, "unknown")
    assert "cancelled" in row.detail
