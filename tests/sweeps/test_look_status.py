"""`slurmopt status`, `list`, `logs` and `history` of sweeps and points, as they are typed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of

from slurmopt.cli import main
from slurmopt.commands import status as command
from slurmopt.runs.history.query import moment


def printed(capsys: Any, *words: str) -> str:
    assert main(list(words)) == 0
    return str(capsys.readouterr().out)


def refused(capsys: Any, *words: str) -> str:
    assert main(list(words)) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return str(said)


@pytest.fixture
def mixed(make_sweep: Any, in_queue: Any) -> Any:
    """Some of it finished, failed in two ways, runs and waits."""
    made = make_sweep(lr=list(range(20))).submitted("0-19", "7")
    for point in range(8):
        made.ended(point)
    for point in (8, 9, 10):
        log = f"step 1\nTraceback (most recent call last):\n  File 'x'\nValueError: lr {point}.5 is too large\n"
        made.ended(point, "user error", rank=0, error=f"ValueError: lr {point}.5 is too large", log=log)
    made.ended(11, "killed", cause="out of memory", error="rank 0 was killed")
    made.started(12, log="hello from 12\n")
    in_queue(made, ("7_12", "RUNNING", "None"), ("7_[13-19%8]", "PENDING", "JobArrayTaskLimit"))
    return made


def test_a_sweep_has_one_page(mixed: Any, capsys: Any) -> None:
    page = printed(capsys, "status", "mine")
    for text in (
        f"{mixed.label}: running",
        "12 of 20 have ended",
        "████",
        "60 %",
        "8 finished · 3 failed · 1 killed · 1 running · 7 pending",
        "points a minute",
        "3 points (8-10): user error: ValueError: lr 8.5 is too large",
        "1 point (11): out of memory: rank 0 was killed",
        "as many tasks of its array run",
        f"slurmopt logs {mixed.label}/8 --errors",
        f"slurmopt retry {mixed.label} --failed",
    ):
        assert text in page


def test_points_that_wait_for_room_in_the_queue_are_told_and_those_of_a_broken_off_launch_are_not(
    make_sweep: Any, in_queue: Any, capsys: Any
) -> None:
    made = make_sweep().submitted("0-2", "7")
    in_queue(made, ("7_[0-2]", "PENDING", "Priority"))
    waits = "3 points are submitted as soon as the site's limits make room"
    assert waits not in printed(capsys, "status", "mine")
    made.folder.more.write_text("")  # what a launch leaves that went on to its end
    in_queue(made, ("7_[0-2]", "PENDING", "Priority"))
    assert waits in printed(capsys, "status", "mine")


def test_every_key_of_a_sweeps_json_is_documented(mixed: Any, capsys: Any) -> None:
    (found,) = data_of(printed(capsys, "status", "--json"))
    documented = str(command.__doc__).split()
    assert [key for key in found if key not in documented] == []
    assert (found["sweep"], found["points"], found["ended"], found["state"]) == (True, 20, 12, "running")
    assert found["states"] == {"finished": 8, "failed": 3, "killed": 1, "running": 1, "pending": 7}
    assert [(one["count"], one["points"], one["example"]) for one in found["failures"]] == [
        (3, "8-10", 8),
        (1, "11", 11),
    ]
    assert found["eta_seconds"] >= 0


def test_a_point_is_launched_with_its_sweep_not_when_its_job_makes_its_config(make_sweep: Any, capsys: Any) -> None:
    made = make_sweep().submitted("0-2", "7")
    made.ended(0)
    first, *rest = made.folder.events.read_text().splitlines()
    began = json.loads(first)["time"] - 3600
    made.folder.events.write_text("\n".join([json.dumps({**json.loads(first), "time": began}), *rest, ""]))
    assert f"{moment(began)}  launched" in printed(capsys, "history", "mine/0")


def test_a_point_is_shown_as_a_run(mixed: Any, capsys: Any) -> None:
    page = printed(capsys, "status", "mine/8")
    assert f"{mixed.label}/8: failed" in page
    assert "lr 8.5 is too large" in page
    assert f"slurmopt retry {mixed.label}/8" in page
    (found,) = data_of(printed(capsys, "status", f"{mixed.label}/12", "--json"))
    assert (found["state"], found["job"], found["id"]) == ("running", "7_12", "20261121-120000-aaaa/12")
    (found,) = data_of(printed(capsys, "status", f"{found['name']}/{found['id']}", "--json"))
    assert found["state"] == "running"


def test_a_point_that_waits_says_why(mixed: Any, capsys: Any) -> None:
    page = printed(capsys, "status", "mine/13")
    assert f"{mixed.label}/13: pending" in page
    assert "as many tasks of its array run" in page
    (found,) = data_of(printed(capsys, "status", "mine/13", "--json"))
    assert found["state"] == "pending"
    assert "has not started yet" in refused(capsys, "logs", "mine/13")


def test_several_points_and_several_runs(mixed: Any, capsys: Any) -> None:
    table = printed(capsys, "status", "mine/7-9,13")
    assert "1 finished · 2 failed · 1 pending" in table
    assert [line.split()[:2] for line in table.splitlines()[2:]] == [
        ["7", "finished"],
        ["8", "failed"],
        ["9", "failed"],
        ["13", "pending"],
    ]
    (found,) = data_of(printed(capsys, "status", "mine/7-9", "--json"))
    assert [one["state"] for one in found["each"]] == ["finished", "failed", "failed"]
    both = printed(capsys, "status", "mine", "mine/8", "mine/7-9")
    assert len(both.splitlines()) == 4


def test_a_sweep_is_one_line_among_runs(mixed: Any, make_sweep: Any, capsys: Any) -> None:
    make_sweep("second", "20261121-120000-bbbb")
    for words in (["list"], ["status", "--all"]):
        lines = printed(capsys, *words).splitlines()
        assert len(lines) == 3
        assert "8 finished · 3 failed" in "".join(lines)
    found = {one["name"]: one for one in data_of(printed(capsys, "list", "--json"))}
    assert (found["mine"]["state"], found["mine"]["points"]) == ("running", 20)
    assert (found["second"]["state"], found["second"]["points"]) == ("unsubmitted", 6)


def test_tend_takes_no_sweep_for_a_run(mixed: Any, capsys: Any) -> None:
    from slurmopt.runs.all_runs import all_runs, all_sweeps

    assert all_runs(mixed.folder.path.parents[1]) == []
    assert [sweep.path for sweep in all_sweeps(mixed.folder.path.parents[1])] == [mixed.folder.path]


@pytest.mark.parametrize(
    ("word", "label"),
    [
        ("mine", "mine/20261121-120000-aaaa:"),
        ("mine/20261121-120000-aaaa", "mine/20261121-120000-aaaa:"),
        ("20261121-120000-aaaa", "mine/20261121-120000-aaaa:"),
        ("20261121", "mine/20261121-120000-aaaa:"),
        ("runs/mine/20261121-120000-aaaa", "mine/20261121-120000-aaaa:"),
        ("runs/mine/20261121-120000-aaaa/points/00008", "mine/20261121-120000-aaaa/8:"),
        ("7", "mine/20261121-120000-aaaa:"),
        ("7_8", "mine/20261121-120000-aaaa/8:"),
        ("7/8", "mine/20261121-120000-aaaa/8:"),
        ("mine/20261121-120000-aaaa/8", "mine/20261121-120000-aaaa/8:"),
        ("20261121-120000-aaaa/8", "mine/20261121-120000-aaaa/8:"),
        ("runs/mine/20261121-120000-aaaa/8", "mine/20261121-120000-aaaa/8:"),
    ],
)
def test_how_sweeps_and_points_are_named(mixed: Any, capsys: Any, word: str, label: str) -> None:
    assert printed(capsys, "status", word).startswith(label)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["status", "mine/20"], "has no point 20; valid: 0 to 19"),
        (["status", "mine/3-40"], "has no point 20; valid: 0 to 19"),
        (["status", "mine/9-3"], "did you mean 3-9?"),
        (["status", "7_20"], "has no task 20; valid: 0 to 19"),
        (["logs", "mine"], "name one, such as mine/20261121-120000-aaaa/0, or add --errors"),
        (["history", "mine"], "is a sweep; name one point, such as mine/20261121-120000-aaaa/0"),
        (["logs", "mine/3-9"], "name one, such as mine/20261121-120000-aaaa/3"),
    ],
)
def test_bad_words_have_one_clear_line(mixed: Any, capsys: Any, words: list[str], said: str) -> None:
    assert said in refused(capsys, *words)


def test_the_log_and_the_story_of_a_point(mixed: Any, capsys: Any) -> None:
    assert printed(capsys, "logs", "mine/12") == "hello from 12\n"
    assert "attempt 0" in printed(capsys, "history", "mine/8")


def test_errors_of_a_sweep_are_one_traceback_a_kind(mixed: Any, capsys: Any) -> None:
    said = printed(capsys, "logs", "mine", "--errors")
    assert said.count("Traceback (most recent call last)") == 1
    assert "3 points (8-10): user error: ValueError: lr 8.5 is too large" in said
    assert f"slurmopt logs {mixed.label}/8 --errors" in said
    assert "1 point (11): out of memory" in said
    assert "no point has failed" in printed(capsys, "logs", "mine/0-3", "--errors")
    assert "lr 9.5 is too large" in printed(capsys, "logs", "mine/9", "--errors")


def test_what_a_job_wrote_stays_one_line_on_the_terminal(make_sweep: Any, capsys: Any) -> None:
    made = make_sweep("min\x1b[2Je").submitted("0-5", "7")
    for point in range(6):
        made.ended(point, "user error", error="bad\x1b[2J\nnews")
    for words in (["status"], ["list"], ["logs", "--errors"], ["status", "20261121/3"], ["results"]):
        assert "\x1b" not in printed(capsys, *words)


def test_watch_ends_when_all_points_have(make_sweep: Any, capsys: Any) -> None:
    made = make_sweep().submitted("0-5", "7")
    for point in range(6):
        made.ended(point)
    assert "6 finished" in printed(capsys, "status", "mine", "--watch")


def test_the_next_step_can_be_typed_from_where_one_stands(
    make_sweep: Any, capsys: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    made = make_sweep().submitted("0-5", "7")
    for point in range(5):
        made.ended(point)
    made.ended(5, "user error", error="ValueError: no")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for words in (["status", str(made.folder.path)], ["status", f"{made.folder.path}/5"]):
        assert main(words) == 0
        steps = re.findall(r"slurmopt (\w+) (\S+)", capsys.readouterr().out.partition("next")[2])
        assert steps
        for what, word in steps:
            if what in ("status", "results", "logs"):
                assert main([what, word]) == 0, (what, word)
    monkeypatch.chdir(tmp_path)
    assert main(["status", "mine"]) == 0
    assert f"slurmopt results {made.label}" in capsys.readouterr().out
