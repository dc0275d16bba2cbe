"""`slurmopt cancel` and `slurmopt throttle` of sweeps: what is told to whom. tests/launching asks a real Slurm."""

from __future__ import annotations

from typing import Any

import pytest

from slurmopt.cli import main
from slurmopt.commands.cancel import _sweep_line
from slurmopt.grid.point_ranges import Ranges
from slurmopt.run_folder import events
from slurmopt.runs.find import Selection
from slurmopt.sweeps import cancel
from slurmopt.sweeps.status.query import sweep_states


def words(made: Any, in_queue: Any, points: str, *jobs: tuple[str, str, str]) -> list[str]:
    """What scancel would get for these points, as Slurm has the jobs."""
    in_queue(made, *jobs)
    seen = sweep_states(made.folder)
    going = cancel._unfinished(seen, Selection(made.folder, Ranges.parse(points) if points else None))
    return list(cancel._scancel_args(seen, going))


def test_a_whole_sweep_is_its_array_jobs(make_sweep: Any, in_queue: Any) -> None:
    made = make_sweep().submitted("0-2", "7").submitted("3-5", "8")
    made.ended(0)
    jobs = (("7_[1-2]", "PENDING", "Priority"), ("8_[0-2]", "PENDING", "Priority"))
    assert words(made, in_queue, "", *jobs) == ["8", "7"]


def test_points_are_array_tasks_of_the_job_that_has_them_now(make_sweep: Any, in_queue: Any) -> None:
    made = make_sweep().submitted("0-5", "7")
    for point in (2, 4):
        made.ended(point, "user error", error="no")
    made.submitted("2,4", "8")
    jobs = (("7_[0-1,3,5]", "PENDING", "Priority"), ("8_[0-1]", "PENDING", "Priority"))
    assert words(made, in_queue, "1-2,4-5", *jobs) == ["8", "7_[1,5]"]


def test_array_tasks_with_other_points_go_on(make_sweep: Any, in_queue: Any) -> None:
    made = make_sweep(lr=list(range(9))).submitted("0-8", "7", per_task=3)
    made.task(0, 0, (0, "started"), (0, "finished"), (1, "started"))
    jobs = (("7_0", "RUNNING", "None"), ("7_[1-2]", "PENDING", "Priority"))
    assert words(made, in_queue, "1,3-5", *jobs) == ["7_[1]"]  # point 2 still waits in the first array task
    assert words(made, in_queue, "1-5", *jobs) == ["7_[0-1]"]


def test_a_running_point_of_a_pack_is_asked_alone(make_sweep: Any, in_queue: Any) -> None:
    made = make_sweep().submitted("0-5", "7", per_task=6)
    made.task(0, 0, (0, "started"), (1, "started"))
    in_queue(made, ("7_0", "RUNNING", "None"))
    seen = sweep_states(made.folder)
    cancel._cancel(seen, Ranges.parse("1,4"))  # where there is no scancel, and none is needed
    assert made.folder.cancelled.read_text() == "1,4\n"
    in_queue(made, ("7_0", "RUNNING", "None"))
    assert {point: sweep_states(made.folder).of(point).state for point in range(6)} == {
        0: "running", 1: "stopping", 2: "pending", 3: "pending", 4: "cancelled", 5: "pending",
    }  # fmt: skip


def test_a_cancel_that_does_not_reach_slurm_is_taken_back(make_sweep: Any, capsys: Any) -> None:
    made = make_sweep().submitted("0-5", "7")
    run = made.started(1)
    assert main(["cancel", "mine"]) == 2
    assert "scancel is not installed here" in capsys.readouterr().err
    assert made.folder.cancelled.read_text() == "\n"
    assert [event["event"] for event in events.read(run.events)][-2:] == ["cancel", "cancel-failed"]
    assert "cancelled" not in sweep_states(made.folder).counts()


def test_many_scattered_points_fit_into_the_words_of_a_command(make_sweep: Any, in_queue: Any) -> None:
    made = make_sweep(lr=list(range(100)), seed=list(range(100))).submitted("0-9999", "7")
    told = words(made, in_queue, ",".join(map(str, range(0, 10000, 2))), ("7_[0-9999]", "PENDING", "Priority"))
    assert len(told) == 3
    assert max(map(len, told)) < 100_000


def test_points_that_have_ended_are_told_as_such(make_sweep: Any, capsys: Any) -> None:
    made = make_sweep().submitted("0-5", "7")
    for point in range(6):
        made.ended(point, *(("user error",) if point == 3 else ()))
    for chosen, said in (
        ("/1-3,5", f"{made.label}/1-3,5 have ended already: 3 finished, 1 failed"),
        ("/3", f"{made.label}/3 has ended already: 1 failed"),
        ("", f"{made.label} has ended already: 5 finished, 1 failed"),
    ):
        assert main(["cancel", f"mine{chosen}"]) == 2
        assert said in capsys.readouterr().err.replace(" · ", ", ")


def test_a_retry_where_nothing_has_failed_says_of_what_once(make_sweep: Any, capsys: Any) -> None:
    made = make_sweep().submitted("0-5", "7")
    for point in range(6):
        made.ended(point)
    assert main(["retry", "mine/1-3,5", "--again"]) == 2
    assert "--again is for runs" in capsys.readouterr().err
    assert main(["retry", "mine/1-3,5"]) == 2
    said = capsys.readouterr().err
    assert f"{made.label}: no point of 1-3,5 has failed or was cancelled, so there is nothing to retry" in said
    assert said.count(made.label) == 1
    assert main(["retry", "--failed"]) == 0
    assert "0 of 1 sweeps have points that failed" in capsys.readouterr().err


def test_many_cancelled_ranges_are_cut_and_what_to_type_next_is_not(make_sweep: Any) -> None:
    made = make_sweep(lr=list(range(300)), seed=[0]).submitted("0-299", "7")
    chosen = Ranges.parse(",".join(map(str, range(0, 300, 2))))
    made.folder.cancelled.write_text(f"{chosen}\n")
    for point in range(0, 300, 2):
        made.ended(point, "killed", cause="cancelled")
    said = _sweep_line(cancel.Cancelled(chosen, [], sweep_states(made.folder)))
    assert ",…: 150 points are cancelled" in said
    assert f"; slurmopt retry {made.label} goes on with them" in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["mine", "x"], "'x' is not valid; valid: 0 (no limit), 1, 2"),
        (["mine", "-1"], "valid"),
        (["mine/3", "4"], "is not a whole sweep"),
        (["mine", "4"], "has ended already: finished"),
    ],
)
def test_bad_throttles(make_sweep: Any, capsys: Any, given: list[str], said: str) -> None:
    made = make_sweep().submitted("0-5", "7")
    for point in range(6):
        made.ended(point)
    assert main(["throttle", *given]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1
