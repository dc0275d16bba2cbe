"""Reports on run folders that somebody else has filled: numbers that no clock shows, text that is code."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from report.test_gather import Run, T, finished_run

from slurmopt.command_output import dumped
from slurmopt.report.comparison import compared
from slurmopt.report.gather import gather, gather_many
from slurmopt.report.output import comparison_text
from slurmopt.report.output.page import page_of
from slurmopt.report.output.text import lines
from slurmopt.report.run.build import built, report_on
from slurmopt.run_folder.series.series import read as series_of
from slurmopt.runs.metrics.files import write_csv
from slurmopt.runs.metrics.query import load

CODE = '\x1b[2J</script><script>alert(1)</script>" onload="x'


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    made = finished_run(tmp_path, monkeypatch)
    rows = [[T + 60 + 10 * at, 10.0, 50.0] for at in range(10)]
    made.series(0, "node1", rows, ["gpu0.util"])  # type: ignore[arg-type]
    return made


def heartbeats(run: Run) -> None:
    huge = ("time", "started", "step_time", "first_step_time", "interval")
    for rank in range(4):
        path = run.folder.heartbeat(0, rank)
        beat = json.loads(path.read_text())
        spent = dict.fromkeys([*beat["spent"], "checkpoint", "input"], 1e308)
        path.write_text(
            json.dumps({**beat, **dict.fromkeys(huge, 1e308), "spent": spent, "counted": {"tokens": 1e308}})
        )


def journal(sign: float) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        told = [json.loads(line) for line in run.folder.events.read_text().splitlines()]
        run.folder.events.write_text("".join(json.dumps({**one, "time": sign * 1e308}) + "\n" for one in told))
        run.note(sign * 1e99, "attempt", attempt=1, job="8", nodes="node1", gpus=2)

    return change


def series(run: Run) -> None:
    rows = [[T + 70, 10.0, 1e308], [T + 80, 10.0, 1e308], [1e308, 1e308, 1.0], [-1e308, 0.0, 1.0]]
    run.series(0, "node1", rows, ["node.memory"])  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [heartbeats, journal(1), journal(-1), series])
def test_absurd_numbers_end_no_report(run: Run, change: Callable[[Run], None]) -> None:
    change(run)
    report = report_on(run.folder)
    assert page_of(report).rstrip().endswith("</html>")
    assert any("mine/one" in text for line in lines(report, 80) for text, _ in line)


def test_text_of_a_run_is_neither_run_nor_obeyed(run: Run) -> None:
    told = [json.loads(line) for line in run.folder.events.read_text().splitlines()]
    words = ("job", "nodes", "cause", "error", "reason", "name")
    changed = [{**one, **{word: CODE for word in words if word in one or one["event"] == "end"}} for one in told]
    run.folder.events.write_text("".join(json.dumps(one) + "\n" for one in changed))
    gpu = {"index": 0, "name": CODE, "uuid": CODE}
    run.series(0, "node1", [[T + 70, 10.0, 5.0]], ["gpu0.util"], facts={"gpus": [gpu], "gpu_error": CODE})
    path = run.folder.series(0, "node1")
    path.write_text(path.read_text().replace('"node": "node1"', f'"node": {json.dumps(CODE)}'))
    report = report_on(run.folder)
    text = "\n".join("".join(text for text, _ in line) for line in lines(report, 80))
    page = page_of(report)
    assert "alert(1)" in text
    assert "alert(1)" in page
    assert all(line.isprintable() for line in text.splitlines())
    assert "\x1b" not in page
    assert "<script>alert" not in page
    assert 'onload="' not in page
    found = compared([(gather(run.folder), None), (gather(run.folder), 0)])
    assert "\x1b" not in "".join(text for line in comparison_text.lines(found, 80) for text, _ in line)


def test_a_report_says_why_gpus_were_not_measured_and_that_no_steps_were_reported(run: Run) -> None:
    for rank in range(4):
        run.beat(0, rank, T + 60, step=None, step_time=None, first_step=None, first_step_time=None)
    why = "GPUs are not measured: this Python does not have nvidia-ml-py (pip install 'slurmopt[gpu]')"
    for node in ("node1", "node2"):
        run.series(0, node, [], [], facts={"gpus": [{"index": 0, "uuid": None}], "gpu_error": why})
    notes = built(gather(run.folder)).notes
    assert f"node1, node2: {why}" in notes
    assert "no rank reported steps (slurmopt.progress): all of its time after the start counts as compute" in notes


@pytest.mark.parametrize(
    ("per", "why"), [("job", "task.per=job: slurmopt starts no process there"), ("auto", "they have no series")]
)
def test_a_report_names_the_nodes_that_were_not_measured(run: Run, per: str, why: str) -> None:
    run.folder.config.write_text(f"task: {{per: {per}}}\n")
    run.series(0, "node1", [[T + 70, 10.0, 5.0]], ["gpu0.util"])
    assert f"not measured: node2: {why}" in report_on(run.folder).notes
    run.series(0, "node2", [[T + 70, 10.0, 5.0]], ["gpu0.util"])
    assert not [note for note in report_on(run.folder).notes if note.startswith("not measured")]


def test_a_report_tells_which_series_lack_rows(run: Run) -> None:
    began = {"facts": {"started": T + 65}}
    for node, count in (("node1", 11), ("node2", 3)):
        run.series(0, node, [[T + 75 + 10 * at, 10.0, 5.0] for at in range(count)], ["gpu0.util"], **began)
    notes = [note for note in report_on(run.folder).notes if note.startswith("measured in part")]
    assert notes == ["measured in part: node2 in attempt 0 (30s of 1m50s): rows of the series are missing"]


def test_a_config_of_a_hundred_thousand_brackets_ends_no_command(run: Run, tmp_path: Path) -> None:
    run.folder.config.write_text("a: " + "[" * 100_000)
    for command in (["history", "mine"], ["report", "mine"]):
        done = subprocess.run(
            [sys.executable, "-m", "slurmopt", *command], cwd=tmp_path, capture_output=True, text=True, timeout=180
        )
        assert done.returncode == 0, "libyaml would end the process with SIGSEGV"
        assert "mine/one" in done.stdout


def test_curves_of_a_short_run_are_of_its_fine_rows(run: Run) -> None:
    """The lengths of rows are of another clock than their ends: the merged row begins some milliseconds earlier."""
    run.series(0, "node1", [[T + 160, 100.004, 5.0]], ["node.cpu"])
    fine = [[T + 70 + 10 * at, 10.0, float(at)] for at in range(10)]
    recent = run.folder.recent_series(0, "node1")
    head = run.folder.series(0, "node1").read_text().splitlines()[0]
    recent.write_text("\n".join([head, *map(json.dumps, fine)]) + "\n")
    (cores,) = (panel for panel in report_on(run.folder).panels if "CPU" in panel.title)
    assert len({value for value in cores.lines[0].values if value is not None}) > 5, "not one flat line"


@pytest.mark.parametrize(
    ("columns", "row", "facts"),
    [
        (("rank0.steps", "gpu0.memory", "node.cpu"), [10.0, 5e-324, 5e-324, 5e-324], {}),
        (("gpu0.memory", "gpu0.power"), [10.0, 0, 0], {"gpus": [{"index": 0, "memory": 0, "power_limit": -5}]}),
        (("rank0.steps", "node.cpu"), [0, 1, 1], {}),
        (("rank0.steps", "rank0.running.share"), [5e-324, 1, 0.5], {}),
    ],
)
def test_numbers_near_zero_end_neither_a_page_nor_a_comparison(
    run: Run, columns: tuple[str, ...], row: list[float], facts: dict[str, Any]
) -> None:
    rows = [[T + 70 + at, *row] for at in range(20)]
    run.series(0, "node1", rows, list(columns), facts={"gpus": [{"index": 0}], **facts})  # type: ignore[arg-type]
    record = gather(run.folder)
    assert page_of(built(record)).rstrip().endswith("</html>")
    assert len(compared([(record, None), (record, 0)]).sides) == 2


def test_ranks_that_spent_nearly_nothing_end_no_report(run: Run) -> None:
    counted = {"steps": 100, "ddp_sampled": 3, "ddp_forward": 1, "ddp_backward": 2, "ddp_exposed": 1}
    for rank in range(4):
        run.beat(0, rank, T + 60, spent={"running": 5e-324}, counted=counted)
    assert "DDP" in str(report_on(run.folder).abstentions)


def test_a_node_that_is_no_text_ends_no_report_on_many_runs(run: Run) -> None:
    told = run.folder.events.read_text().splitlines()
    run.folder.events.write_text("".join(line + "\n" for line in told if '"end"' not in line))
    for rank in range(4):
        run.beat(0, rank, T + 60, node=["node1"])
    (brief,), _ = gather_many([run.folder])
    assert brief.ledger.allocated == gather(run.folder).ledger.allocated


def test_what_yaml_has_beyond_json_can_be_compared(run: Run) -> None:
    run.folder.config.write_text("a: 2026-01-01\nb: [{2026-01-01: 1}]\nc: !!binary aGk=\nd: !!set {x}\ne: .nan\n")
    other = Run(run.folder.path.parent / "two")
    other.begin(0, T + 60)
    other.folder.config.write_text("a: 2\n")
    found = compared([(gather(run.folder), None), (gather(other.folder), None)])
    told = json.loads(dumped(asdict(found)))["config"]
    assert told["a"] == ["2026-01-01", 2]
    assert told["b"] == [[{"2026-01-01": 1}], None]
    shown = "\n".join("".join(text for text, _ in line) for line in comparison_text.lines(found, 80))
    assert "2026-01-01" in shown


def test_no_cell_of_a_table_is_a_formula(run: Run) -> None:
    run.series(0, "node1", [[T + 70, 10.0, 5.0, 6.0]], ["=1+1", "gpu0.util"])  # type: ignore[arg-type]
    found = series_of(run.folder.series(0, "node1"))
    assert found is not None
    assert found.values == {}
    run.series(0, "node1", [[T + 70, 10.0, 5.0]], ["gpu0.util"])
    path = run.folder.series(0, "node1")
    path.write_text(path.read_text().replace('"node": "node1"', '"node": "=1+1"'))
    run.folder.attempt_logs(0).mkdir(parents=True)
    out = io.StringIO()
    write_csv(load(run.folder), out)
    assert [line[0] for line in out.getvalue().splitlines()] == ["n", "?"]
