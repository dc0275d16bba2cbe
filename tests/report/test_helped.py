"""What the report on a run says of the change since the run before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report.test_gather import LIFE, Run, T

from slurmopt.report.run.build import report_on


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")


def launched(folder: Path, name: str, after: float, waiting: float | None) -> Run:
    """A run that was launched `after` seconds, and waited `waiting` of 80 s for input; None: it failed at once."""
    run = Run(folder / "runs" / "mine" / name)
    journal = run.folder.events
    journal.write_text(journal.read_text().replace(str(T), str(T + after)))
    start, failed = T + after + 60, waiting is None
    run.begin(0, start)
    told: dict[str, Any] = {"spent": {**LIFE, "running": 80.0 - (waiting or 0.0), "input": waiting or 0.0}}
    if failed:
        told = {
            "spent": {"starting": 2.0},
            "step": None,
            "step_time": None,
            "first_step": None,
            "first_step_time": None,
        }
        told["time"] = start + 8
    beats = [run.beat(0, rank, start, **told) for rank in range(4)]
    ended = {"outcome": "user error", "exit_code": 1, "cause": "user error"} if failed else {}
    run.end(0, start + (10 if failed else 115), beats, **ended)
    return run


def test_the_report_says_what_the_finding_cost_before_and_how_fast_both_are(tmp_path: Path) -> None:
    launched(tmp_path, "one", 0, waiting=40.0)
    report = report_on(launched(tmp_path, "two", 1000, waiting=0.4).folder)
    assert report.helped[0].startswith("since one: input-bound: gone; it cost 3")
    assert report.helped[1].endswith("before (+0 %)")


def test_a_run_that_failed_at_once_hides_no_finding_of_the_one_before_it(tmp_path: Path) -> None:
    launched(tmp_path, "one", 0, waiting=40.0)
    for number in range(3):
        launched(tmp_path, f"failed{number}", 1000 + number, waiting=None)
    report = report_on(launched(tmp_path, "two", 2000, waiting=0.4).folder)
    assert report.helped[0].startswith("since one: input-bound: gone")


def test_a_run_that_trained_without_finding_is_the_one_to_compare_with(tmp_path: Path) -> None:
    launched(tmp_path, "one", 0, waiting=40.0)
    launched(tmp_path, "healthy", 1000, waiting=0.4)
    assert report_on(launched(tmp_path, "two", 2000, waiting=0.4).folder).helped == []
