"""At the start of an attempt: whether there is anything left to do, and how those before it ended."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from slurmopt.job.supervisor import previous_attempts
from slurmopt.restart.policy import Policy
from slurmopt.run_folder import events
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder

FINISHED = {"outcome": "finished", "exit_code": 0, "cause": "finished", "next": None, "result": {"score": 3}}
FAILED = {"outcome": "user error", "exit_code": 1, "cause": "user error", "next": None, "error": "ValueError: no"}


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFolder:
    sweep = SweepFolder(tmp_path / "runs" / "test" / "one")
    sweep.logs.mkdir(parents=True)
    sweep.points_file.write_text("{}")
    return sweep


def _attempt(run: RunFolder, number: int, job: str = "7_0", end: dict[str, Any] | None = None) -> None:
    run.attempt_logs(number).mkdir(parents=True)
    events.append(run.events, "attempt", attempt=number, job=job)
    if end is not None:
        events.append(run.events, "end", attempt=number, **end)


def _answer(run: RunFolder, number: int, capsys: pytest.CaptureFixture[str]) -> str:
    assert previous_attempts.main([str(run.path), str(number), Policy().to_json_arg()]) == 0
    return capsys.readouterr().out.strip()


def _ends(run: RunFolder) -> list[dict[str, Any]]:
    return [event for event in events.read(run.events) if event["event"] == "end"]


@pytest.mark.parametrize(("end", "answer"), [(FINISHED, "over 0"), (FAILED, "over 1")])
def test_a_point_that_has_ended_for_good_is_not_run_again(
    sweep: SweepFolder, capsys: pytest.CaptureFixture[str], end: dict[str, Any], answer: str
) -> None:
    point = sweep.point(3)
    _attempt(point, 0, end=end)
    _attempt(point, 1)  # died before it could ask
    _attempt(point, 2)
    assert _answer(point, 2, capsys) == answer
    last = _ends(point)[-1]
    assert last["attempt"] == 2
    assert {name: last[name] for name in end} == end  # whoever looks at the latest attempt alone sees the same


def test_a_retry_runs_what_has_ended(sweep: SweepFolder, capsys: pytest.CaptureFixture[str]) -> None:
    point = sweep.point(3)
    _attempt(point, 0, end=FAILED)
    events.append(point.events, "retry", changes={})
    _attempt(point, 1)
    assert _answer(point, 1, capsys) == "0"


def test_a_point_that_is_to_come_back_does(sweep: SweepFolder, capsys: pytest.CaptureFixture[str]) -> None:
    point = sweep.point(3)
    _attempt(point, 0, end={"outcome": "requeue", "cause": "time limit", "next": "requeue", "step": 4})
    _attempt(point, 1)
    assert _answer(point, 1, capsys) == "0"


@pytest.mark.parametrize(("end", "answer"), [(FINISHED, "over 0"), (FAILED, "0")])
def test_an_array_task_of_many_points_is_over_when_all_have_finished(
    sweep: SweepFolder, capsys: pytest.CaptureFixture[str], end: dict[str, Any], answer: str
) -> None:
    task = sweep.task(0, 0)
    _attempt(task, 0, end=end)
    _attempt(task, 1)
    assert _answer(task, 1, capsys) == answer


def test_a_run_that_its_owner_requeues_runs_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunFolder(tmp_path / "runs" / "test" / "one")
    _attempt(run, 0, job="7", end=FINISHED)
    _attempt(run, 1, job="7")
    assert _answer(run, 1, capsys) == "0"


@pytest.mark.parametrize(
    ("job", "age", "written", "interval"),
    [
        ("8_0", 0, False, 10.0),
        ("8_0", 600, True, 10.0),
        ("7_0", 0, True, 10.0),
        ("8_0", 100, False, 90.0),
        ("8_0", 600, True, 90.0),
        ("8_0", 100, True, None),  # of an earlier version
    ],
)
def test_no_end_is_written_of_an_attempt_that_lives_in_another_array_task(
    sweep: SweepFolder, capsys: pytest.CaptureFixture[str], job: str, age: float, written: bool, interval: float | None
) -> None:
    point = sweep.point(3)
    _attempt(point, 0, job="7_0")
    beat = point.heartbeat(0, 0)
    beat.parent.mkdir(parents=True)
    Heartbeat(0, 1, "node1", 1, interval).write(beat)
    os.utime(beat, (time.time() - age,) * 2)
    _attempt(point, 1, job=job)
    assert _answer(point, 1, capsys) == "0"
    assert bool(_ends(point)) is written
