"""Reports on many: all runs and sweeps of a user, and some points of a sweep."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of
from sweeps.conftest import MadeSweep

from slurmopt.commands import compare
from slurmopt.commands import report as command
from slurmopt.run_folder.layout import RunFolder

T = 1_790_000_000.0
HOUR = 3600.0
HEADER = {"slurmopt_series": 1, "node": "node1", "columns": [], "facts": {"gpus": [{"index": 0, "name": "Odd GPU"}]}}


def note(run: RunFolder, time: float, event: str, **fields: Any) -> None:
    with open(run.events, "a") as journal:
        journal.write(json.dumps({"time": time, "event": event, **fields}) + "\n")


def attempt(run: RunFolder, number: int, start: float, end: float, cause: str = "finished", **fields: Any) -> None:
    """One of two GPUs, which waited a minute in the queue and had 100 s of start-up."""
    note(run, start - 60, "submitted", token=f"t{number}", backend="sbatch", job="7")
    note(run, start, "attempt", attempt=number, job="7", nodes="node1", log_from=0, gpus=2, cpus="8")
    spent = {"starting": 100.0, "running": end - start - 100.0}
    told = {"ranks": 2, "spent": spent, "counted": {}, "started": start, "ended": end, "gpus": 2}
    outcome = "finished" if cause == "finished" else "user error"
    note(run, end, "end", attempt=number, outcome=outcome, cause=cause, next=None, time_spent=told, **fields)


def a_run(folder: Path) -> None:
    """Of an hour."""
    run = RunFolder(folder / "runs" / "alone" / "20261120-1")
    run.make()
    run.config.write_text("resources: {gpus_per_node: 2, gpu_type: Odd GPU}\n")
    note(run, T, "created", name="alone", id="20261120-1")
    attempt(run, 0, T + 60, T + 60 + HOUR)


def a_sweep(make: Callable[..., MadeSweep], name: str = "mine") -> MadeSweep:
    """Of six points: three finished after an hour each, one of them at the second try; one failed; two never began."""
    made = make(name).submitted("0-3", "7")
    for point in range(4):
        run = made.folder.point(point)
        run.path.mkdir(parents=True)
        run.config.write_text("resources: {gpus_per_node: 2, gpu_type: Odd GPU}\n")
        note(run, T, "created", name=run.name, id=run.id)
        if point == 1:
            note(run, T, "attempt", attempt=0, job="7_1", nodes="node1", log_from=0, gpus=2)
            note(run, T + HOUR / 2, "end", attempt=0, outcome="requeue", cause="node failure", next="requeue")
        attempt(run, int(point == 1), T + HOUR, T + 2 * HOUR, "user error" if point == 3 else "finished")
    return made


@pytest.fixture
def prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prices.yaml").write_text(
        "currency: EUR\nprices: [{gpu: Odd GPU, per_hour: 3, date: 2020-01-01, source: ours}]\n"
    )
    monkeypatch.setenv("SLURMOPT_PRICES", str(tmp_path / "prices.yaml"))


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert command.main(list(words)) == 0
    return capsys.readouterr().out


def report_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    return dict(data_of(shown(capsys, *words, "--json")))


@pytest.mark.parametrize(("cause", "so_far"), [("user error", False), ("time limit", True)])
def test_so_far_is_said_only_of_what_goes_on(tmp_path: Path, capsys: Any, cause: str, so_far: bool) -> None:
    run = RunFolder(tmp_path / "runs" / "alone" / "20261120-1")
    run.make()
    note(run, T, "created", name="alone", id="20261120-1")
    attempt(run, 0, T + 60, T + 60 + HOUR, cause, step=20, durable=10)
    if so_far:
        lines = run.events.read_text().replace('"next": null', '"next": "requeue"')
        run.events.write_text(lines)
    assert ("so far" in shown(capsys, "--user", "--folder", str(tmp_path / "runs"))) == so_far


def test_the_points_of_sweeps_are_runs_of_a_user(make_sweep: Any, prices: None, tmp_path: Path, capsys: Any) -> None:
    a_run(tmp_path)
    made = a_sweep(make_sweep)
    of_sweep, report = report_of(capsys, made.label), report_of(capsys, "--user")
    assert of_sweep["device_seconds"] == 9 * HOUR
    assert report["device_seconds"] == of_sweep["device_seconds"] + 2 * HOUR
    assert sum(share["seconds"] for share in report["shares"]) == pytest.approx(11 * HOUR)
    assert (report["runs"], report["sweeps"]) == (7, 1)
    assert (report["states"]["finished"], report["states"]["failed"]) == (4, 1)
    assert report["completion_rate"] == of_sweep["completion_rate"] * 4 / 3 * 4 / 5 == 4 / 5
    assert report["attempts"] == 6
    assert report["causes"] == {"finished": 4, "node failure": 1, "user error": 1}
    assert report["recovery"]["count"] == of_sweep["recovery"]["count"] == 1
    assert report["restart_wait"]["count"] == 1
    assert report["cost"]["amount"] == pytest.approx(33.0)
    assert [(one["name"], one["runs"], one["finished"], one["cost"]) for one in report["groups"]] == [
        ("mine", 6, 3, pytest.approx(27.0)), ("alone", 1, 1, pytest.approx(6.0)),
    ]  # fmt: skip
    assert [member["label"] for member in report["members"]] == [made.label, "alone/20261120-1"]
    text = shown(capsys, "--user")
    assert "7, with the points of 1 sweep: " in " ".join(text.split())
    assert report_of(capsys, "--user", "--since", "1h")["runs"] == 6, "the run was launched long ago"


def test_a_sweep_that_cannot_be_read_costs_only_itself(make_sweep: Any, tmp_path: Path, capsys: Any) -> None:
    a_sweep(make_sweep, "good")
    broken = a_sweep(make_sweep, "broken")
    broken.folder.cancelled.write_text("all of them")
    report = report_of(capsys, "--user")
    assert report["device_seconds"] == 9 * HOUR
    assert [note for note in report["notes"] if broken.label in note and "cannot be read" in note]


def test_the_report_on_some_points_has_these_alone(make_sweep: Any, prices: None, capsys: Any) -> None:
    made = a_sweep(make_sweep)
    some = report_of(capsys, f"{made.label}/2-4")
    assert some["title"] == f"{made.label}/2-4"
    assert (some["runs"], some["states"].get("finished"), some["states"].get("failed")) == (3, 1, 1)
    assert some["device_seconds"] == 4 * HOUR
    assert sum(share["seconds"] for share in some["shares"]) == pytest.approx(4 * HOUR)
    assert sorted(member["label"] for member in some["members"]) == ["point 2", "point 3"]
    assert some["completion_rate"] == 0.5
    assert some["cost"]["amount"] == pytest.approx(12.0)
    parts = [report_of(capsys, f"{made.label}/{points}")["device_seconds"] for points in ("0,2", "1,3-5")]
    assert sum(parts) == report_of(capsys, made.label)["device_seconds"]


def test_the_sampler_of_an_array_task_names_the_gpus_of_its_points(make_sweep: Any, prices: None, capsys: Any) -> None:
    """The config has no gpu_type. An array task of an hour and 400 s on one GPU runs points 0 and 1 side by side."""
    made = make_sweep("packs").submitted("0-1", "9", per_task=2)
    task = made.folder.task(0, 0)
    series = task.series(0, "node1")
    series.parent.mkdir(parents=True)
    facts = {"gpus": [{"index": 0, "name": "Odd GPU"}]}
    series.write_text(json.dumps({"slurmopt_series": 1, "node": "node1", "attempt": 0, "columns": [], "facts": facts}))
    note(task, T - 300, "attempt", attempt=0, job="9_0", nodes="node1", gpus=1)
    told = {"outcome": "finished", "cause": "finished", "next": None}
    for point in (0, 1):
        run = made.folder.packed_point(point, "0-0")
        run.events.parent.mkdir(parents=True)
        note(run, T - 400, "created", name=run.name, id=run.id)
        note(run, T, "attempt", attempt=0, job="9_0", nodes="node1", log_from=0, task="0-0", task_attempt=0)
        note(run, T + HOUR, "end", attempt=0, **told)
        note(task, T, "point", point=point, state="started", attempt=0)
        note(task, T + HOUR, "point", point=point, state="ended", attempt=0, **told)
    note(task, T + HOUR + 100, "end", attempt=0, **told)
    for words in ((made.label,), ("--user",)):
        report = report_of(capsys, *words)
        assert report["device_seconds"] == HOUR + 400
        assert report["cost"]["amount"] == pytest.approx(3 * (HOUR + 400) / HOUR)
    notes = report_of(capsys, f"{made.label}/0")["notes"]
    assert [note for note in notes if note.startswith("it shared an array task: ")]
    assert not [note for note in notes if "there are no series" in note], "the array task has one"


def test_two_points_whose_heartbeats_are_removed_are_compared_by_their_ends(make_sweep: Any, capsys: Any) -> None:
    made = make_sweep("ended").submitted("0-1", "7")
    for point, seconds in ((0, 100.0), (1, 50.0)):
        run = made.folder.point(point)
        run.path.mkdir(parents=True)
        note(run, T, "created", name=run.name, id=run.id)
        note(run, T, "attempt", attempt=0, job="7_0", nodes="node1", log_from=0, gpus=1)
        spent = {"starting": 10.0, "running": seconds, "evaluation": 20.0}
        times = {"started": T, "seen": T + 200, "first_step_time": T + 10, "step_time": T + 200}
        told = {"ranks": 1, "world_size": 1, "ended": 1, "spent": spent, "first_step": 1, **times}
        end = {"outcome": "finished", "cause": "finished", "next": None, "step": 101, "metrics": {"loss": 0.5}}
        note(run, T + 200, "end", attempt=0, time_spent=told, **end)
    assert compare.main([f"{made.label}/0", f"{made.label}/1", "--json"]) == 0
    first, second = data_of(capsys.readouterr().out)["sides"]
    assert (first["step"], first["metrics"]) == (101, {"loss": 0.5})
    assert (first["speed"]["mean"], second["speed"]["mean"]) == (1.0, 2.0)


def test_the_largest_fit_into_a_narrow_terminal(make_sweep: Any, prices: None, tmp_path: Path, capsys: Any) -> None:
    made = a_sweep(make_sweep, "language-models-12b")
    lines = shown(capsys, "--user").splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith(f"  {made.label}  ") and "EUR" in line for line in lines)
