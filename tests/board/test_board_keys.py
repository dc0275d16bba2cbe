"""The board as a user drives it, with keys and the mouse, on real run folders and with slurmopt's real commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import board_runs
import pytest
from board.conftest import Driven
from board_runs import BoardRun
from textual import events

Drive = Callable[..., object]
NASTY = "\x1b[2J[red]red[/red] [link=file:///etc/passwd]here[/link] [@click=app.bell]x\x07\u202e"


def test_it_opens_moves_and_leaves(runs: board_runs.Board, drive: Drive) -> None:
    async def steps(board: Driven) -> None:
        await board.until("9 finished")
        assert "3 running" in board.lines[0]
        assert board.lines[2].startswith("vit-l16-imagenet")  # running ones first, the newest of them on top
        assert "job 481533  on node[11-12]" in board.lines[-2]
        await board.press("down", "j")
        assert "llama-8b-pretrain/" in board.lines[-2]
        await board.press("G")
        assert "bert-base-mnli/" in board.lines[-2]
        await board.press("question_mark")
        assert "the log of rank 0, followed" in board.text
        await board.press("escape", "q")

    app = drive(steps)
    assert app.return_value == 0


def test_filter_sort_and_active(runs: board_runs.Board, drive: Drive) -> None:
    async def steps(board: Driven) -> None:
        await board.until("9 finished")
        await board.press("slash", *"resnet")
        assert board.lines[-1] == " /resnet▏"
        names = [line.split()[0] for line in board.lines[2:5]]
        assert names == ["resnet50-baseline", "resnet50-lr-0.1", "resnet50-lr-0.3"]
        await board.press("enter")
        assert "/resnet" in board.lines[0]
        await board.press("slash", "backspace", *"tx")
        assert "no run matches; esc clears the filter" in board.text
        await board.press("escape")
        await board.until("bert-base-mnli")
        await board.press("a")
        assert "finished" not in "\n".join(board.lines[2:])
        await board.press("escape", "s", "s")
        assert board.lines[2].startswith("bert-base-mnli")
        await board.press("S")
        assert board.lines[2].startswith("whisper-medium-de")

    drive(steps)


def test_details_show_the_error_first_then_the_attempts(runs: board_runs.Board, drive: Drive) -> None:
    async def steps(board: Driven) -> None:
        await board.until("1 failed")
        await board.press("slash", *"clip", "enter", "enter")
        await board.until("ATTEMPTS")
        assert board.lines[1] == "ERROR"
        assert "RuntimeError: shape '[64, 512]' is" in board.lines[2]
        assert board.text.index("logits = model(image, text)") < board.text.index("ATTEMPTS")
        await board.press("escape")
        assert "slurmopt top" in board.lines[0]

    drive(steps, height=60)


def test_metrics_of_a_running_one(runs: board_runs.Board, drive: Drive) -> None:
    async def steps(board: Driven) -> None:
        await board.until("9 finished")
        await board.press("slash", *"llama", "enter")
        for at in range(1, 5):
            runs.beat(at)
            await board.until(lambda board, step=41_000 + 300 * at: f"{step:,}/100,000" in board.row("llama"))
        await board.press("enter")
        await board.until("METRICS")
        curve = next(line for line in board.lines if line.startswith("  loss "))
        assert any(block in curve for block in "▁▂▃▄▅▆▇█")
        assert any(line.split()[:1] == ["tokens_per_second"] for line in board.lines)

    drive(steps, width=160, height=60)


def test_errors_history_and_logs_are_those_of_the_commands(runs: board_runs.Board, drive: Drive) -> None:
    log = runs.finished[0].folder.rank_log(0, 0)
    log.write_text("first\n\x1b[31mred\x1b[0m text\n 10%|#   |\r100%|####|\n" + "x" * 150 + "\n\x1b]0;title\x07last")

    async def steps(board: Driven) -> None:
        await board.until("1 failed")
        await board.press("slash", *"clip", "enter", "e")
        await board.until("is failed: code, rank 0: RuntimeError")
        await board.press("escape", "h")
        await board.until("launched")
        await board.press("escape", "slash", "ctrl+u", *"vit-l16", "enter", "l")
        await board.until("nothing yet")
        await board.press("escape", "slash", "ctrl+u", *"convnext", "enter", "l")
        await board.until("last")
        assert board.lines[1:4] == ["first", "red text", "100%|####|"]
        assert [len(line) for line in board.lines[4:6]] == [100, 50]

    drive(steps)


def test_a_log_is_followed_until_the_user_goes_back(runs: board_runs.Board, drive: Drive) -> None:
    log = runs.vit.folder.rank_log(0, 0)
    log.write_text("".join(f"step {number}\n" for number in range(100)))

    async def steps(board: Driven) -> None:
        await board.until("9 finished")
        await board.press("l")
        await board.until("step 99")
        assert board.lines[-2] == "step 99"
        with log.open("a") as file:
            file.write("step 100\n")
        await board.until("step 100")
        await board.press("up")
        with log.open("a") as file:
            file.write("step 101\n")
        await board.until("/102")  # it came, and the lines stay where the user has scrolled to
        assert "step 101" not in board.text
        child = board.app.screen._source.process
        await board.press("escape")
        await board.until(lambda _: child.poll() is not None)

    drive(steps)


def test_a_change_asks_first(runs: board_runs.Board, drive: Drive) -> None:
    async def steps(board: Driven) -> None:
        await board.until("9 finished")
        before = runs.vit.folder.events.read_text()
        await board.press("c")
        assert f"cancel {runs.vit.label}, which is running? y/n" in board.lines[-1]
        await board.press("n")
        assert "no cancel" in board.lines[-2]
        await board.press("r", "q")  # any other key than y is a no
        assert runs.vit.folder.events.read_text() == before
        await board.press("slash", *"convnext", "enter", "r", "y")
        await board.until(lambda board: "error" in board.lines[-2])

    drive(steps)


def test_cancel_stops_a_real_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drive: Drive) -> None:
    conf = tmp_path / "conf" / "experiment"
    conf.mkdir(parents=True)
    (conf / "long.yaml").write_text("# @package _global_\ntask: {command: sleep 600}\nresources: {time: 60}\n")
    monkeypatch.chdir(tmp_path)
    slurmopt = [sys.executable, "-m", "slurmopt"]
    words = ["launch", "+experiment=long", "launch.backend=local", "launch.name=long", "launch.wait=false"]
    subprocess.run([*slurmopt, *words], check=True, stdout=subprocess.DEVNULL)

    async def steps(board: Driven) -> None:
        await board.until(lambda board: "running" in board.row("long"))
        await board.press("c", "y")
        await board.until(lambda board: "is cancelled" in board.lines[-2])
        await board.until(lambda board: "cancelled" in board.row("long"))

    try:
        drive(steps)
    finally:
        subprocess.run([*slurmopt, "cancel", "long"], check=False, stdout=subprocess.DEVNULL)


def test_the_mouse_selects_opens_sorts_and_presses(runs: board_runs.Board, drive: Drive) -> None:
    async def steps(board: Driven) -> None:
        await board.until("9 finished")
        await board.pilot.click(offset=(3, 4))
        assert "llama-8b-pretrain/" in board.lines[-2]
        await board.pilot.click(offset=(3, 4))
        await board.until("ATTEMPTS")
        await board.press("escape")
        await board.pilot.click(offset=(2, 1))
        assert board.lines[2].startswith("bert-base-mnli")
        board.app.screen.post_message(events.MouseScrollDown(None, 5, 5, 0, 1, 0, False, False, False))
        await board.until(lambda board: "bert-base-mnli/" not in board.lines[-2])
        await board.pilot.click(offset=(3, 29))
        await board.until("the log of rank 0, followed")

    drive(steps)


def test_hostile_texts_are_only_text(runs: board_runs.Board, drive: Drive) -> None:
    run = BoardRun(runs.base, "[red]name[b]", "20991231-000000-[b]a", 30.0)
    run.submitted("9").attempt(1, log=f"{NASTY}\n").beat(3, 9, **{NASTY: float("nan")})
    run.end(20, "failed", error=NASTY, cause="code", rank=0)

    async def steps(board: Driven) -> None:
        await board.until("2 failed")
        line = board.row("[red]name[b]")
        assert "failed" in line
        await board.press("slash", *"red", "enter")
        assert r"\x1b[2J[red]red[/red] [link=file:///etc/passwd]here" in board.text
        await board.press("enter")
        await board.until("ATTEMPTS")
        assert "[@click=app.bell]" in board.text
        await board.press("escape", "e")
        await board.until("[link=file:///etc/passwd]here")
        assert all(line.isprintable() for line in board.lines)
        svg = board.app.export_screenshot()
        assert "<a " not in svg

    drive(steps, width=200)


def test_a_run_that_vanishes_while_it_is_open(runs: board_runs.Board, drive: Drive) -> None:
    async def steps(board: Driven) -> None:
        await board.until("9 finished")
        os.rename(runs.vit.folder.path, runs.base / "moved")
        runs.vit.folder.path.write_text("a file")
        await board.until(lambda board: "gone" in board.row("vit"))
        await board.press("slash", *"vit-l16", "enter", "enter")
        await board.until(f"{runs.vit.label}: gone")
        assert "job 481533 may go on: `scancel 481533` ends it" in board.text
        assert "top1" in board.text, "the metrics that the board has seen"
        await board.press("escape", "l")
        await board.until("exit status 2")
        await board.press("escape", "c", "y")
        await board.until("error: ")

    drive(steps)


def test_it_fits_whatever_size_the_terminal_gets(runs: board_runs.Board, drive: Drive) -> None:
    async def steps(board: Driven) -> None:
        await board.until("9 finished")
        for width, height in ((20, 10), (200, 50), (1, 1), (5, 3), (80, 24)):
            await board.pilot.resize_terminal(width, height)
            await board.until(lambda board, height=height: len(board.lines) == height)
            assert max(map(len, board.lines)) <= width
            await board.press("down", "question_mark", "down", "escape")

    drive(steps)


def test_the_folder_is_empty_at_first(tmp_path: Path, drive: Drive) -> None:
    async def steps(board: Driven) -> None:
        await board.until("start one with slurmopt launch")
        await board.press("enter", "l", "c", "y", "down", "G", "s", "question_mark", "escape")
        BoardRun(tmp_path / "runs", "first", "20260101-000000-aaaa")
        await board.until("unsubmitted")

    drive(steps)


def test_sweeps_have_a_line_and_details(tmp_path: Path, drive: Drive) -> None:
    folder = tmp_path / "runs" / "grid" / "20260101-000000-aaaa"
    (folder / "points").mkdir(parents=True)
    (folder / "points.json").write_text("{}")
    (folder / "events.jsonl").write_text(json.dumps({"time": 1.0, "event": "created", "points": 12}) + "\n")

    async def steps(board: Driven) -> None:
        await board.until("▸ grid")
        await board.until("unsubmitted")
        await board.press("enter")
        await board.until("0 of 12 have ended")
        await board.press("escape", "l")
        await board.until("has a log for each point")

    drive(steps)
