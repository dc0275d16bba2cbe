"""What is made of series: readings, odd nodes, curves, newest rows, speed with its uncertainty."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from slurmopt.report.comparison import differing, flat, rate_in_steps, speed
from slurmopt.report.live import Live
from slurmopt.report.output import pictures
from slurmopt.report.output.terminal import plain
from slurmopt.report.run import curves, measures
from slurmopt.report.run.fine_series import joined
from slurmopt.report.run.measures import NodeSeries
from slurmopt.report.run.run_report import Line, NodeRow, Panel
from slurmopt.report.run.speeds import rates
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series.series import NOT_ALLOWED, NOT_MEASURED, NOT_SUPPORTED, Series
from slurmopt.runs.status.progress import from_heartbeat

GPUS = {"gpus": [{"index": 0, "name": "NVIDIA H100 80GB HBM3", "memory": 80 * 2**30, "power_limit": 700}], "cpus": 16}


def series(node: str = "node1", rows: int = 4, seconds: float = 10.0, **columns: float) -> Series:
    times = [1000.0 + seconds * (row + 1) for row in range(rows)]
    values: dict[str, list[float | None]] = {name.replace("__", "."): [value] * rows for name, value in columns.items()}
    return Series(node, 0, times, [seconds] * rows, values, facts=dict(GPUS))


def beat(**fields: Any) -> Heartbeat:
    """Of a rank that made a hundred steps after the first one in 10 s, in which it waited 5 s for input."""
    at = {"first_step": 1, "first_step_time": 1000.0, "step": 101, "step_time": 1020.0, "time": 1060.0}
    spent = {"first step": 3.0, "running": 5.0, "input": 5.0, "evaluation": 50.0}
    return Heartbeat(0, 1, "node1", 7, **{**at, "spent": spent, "counted": {"steps": 101, "samples": 404}, **fields})


def test_a_speed_ends_with_the_last_step() -> None:
    assert from_heartbeat(beat()).steps_per_second == pytest.approx(5.0), "the last evaluation took 40 s"
    assert rates([beat()])["samples"] == pytest.approx(4 * 5.0)
    assert from_heartbeat(beat(step_time=None)).steps_per_second == pytest.approx(100 / 60)


def test_without_a_series_a_comparison_leaves_evaluations_out_too() -> None:
    assert rate_in_steps(beat()) == pytest.approx(10.0)
    assert rate_in_steps(beat(spent={})) is None


def test_a_column_of_the_node_is_not_that_of_its_gpus() -> None:
    node = NodeSeries("node1", [series(gpu0__memory_peak=5.0, node__memory_peak=7.0)])
    found = node.readings
    assert (found["memory"], found["host_memory"]) == (5.0, 7.0)


def test_means_weigh_by_time_and_leave_out_what_was_not_measured() -> None:
    one = Series("n", 0, [10.0, 40.0, 50.0], [10.0, 30.0, 10.0], {"gpu0.util": [100.0, 20.0, None]}, facts=GPUS)
    assert NodeSeries("n", [one]).readings["util"] == pytest.approx(0.4)


@pytest.mark.parametrize("why", [NOT_SUPPORTED, NOT_ALLOWED])
def test_why_a_reading_is_missing_comes_from_the_series(why: str) -> None:
    one = series(gpu0__util=0.0)
    one.absent = {"gpu0.sm": why}
    found = NodeSeries("n", [one]).readings
    assert found["sm"] == why
    assert found["tensor"] == NOT_MEASURED
    assert found["util"] == 0.0
    told = {usage.name: usage for usage in measures.usage([NodeSeries("n", [one])])}
    assert told["SM activity"].share == why
    assert told["GPU activity"].share == 0.0


def test_the_use_of_memory_is_of_what_the_gpu_has() -> None:
    told = {usage.name: usage for usage in measures.usage([NodeSeries("n", [series(gpu0__memory_peak=20.0 * 2**30)])])}
    assert told["GPU memory"].share == 0.25
    assert told["GPU memory"].detail == "20.0 GiB at most, of 80.0 GiB"


def rows(**odd: dict[str, float]) -> list[NodeRow]:
    random = Random(3)
    found = []
    for index in range(16):
        readings = {"util": 0.9 + random.uniform(-0.01, 0.01), "temperature": 60 + random.uniform(-2, 2)}
        found.append(NodeRow(f"node{index}", 8, (), {**readings, **odd.get(f"node{index}", {})}))
    return found


def test_nodes_that_do_not_differ_are_not_odd_and_keep_their_order() -> None:
    judged = measures.with_remarks(rows(), {})
    assert [row.node for row in judged] == [f"node{index}" for index in range(16)]
    assert not any(row.remark for row in judged)


def test_the_node_that_differs_most_is_first() -> None:
    judged = measures.with_remarks(rows(node7={"util": 0.3}, node9={"temperature": 85.0}), {"node2": "it is slow"})
    assert [row.node for row in judged[:3]] == ["node2", "node7", "node9"]
    assert judged[0].remark == "it is slow"
    assert judged[1].remark.startswith("GPU activity 30.0 % (median 9")
    assert "hottest GPU 85 °C" in judged[2].remark


def test_a_busier_node_is_not_odd() -> None:
    assert not measures.with_remarks(rows(node7={"util": 1.0, "temperature": 40.0}), {})[0].remark


def test_curves_have_gaps_where_nothing_ran() -> None:
    first, second = series(gpu0__util=50.0), series(gpu0__util=100.0)
    second.times = [time + 400 for time in second.times]
    (panel,) = [one for one in curves.panels([NodeSeries("n", [first, second])]) if one.title == "GPU activity"]
    values = panel.lines[0].values
    assert values[0] == pytest.approx(0.5)
    assert values[-1] == pytest.approx(1.0)
    assert values[len(values) // 2] is None
    assert "M" in pictures.picture(panel).curves[0].path[1:], "the pen is lifted"


def test_a_long_row_is_drawn_over_its_whole_length() -> None:
    (panel,) = curves.panels([NodeSeries("n", [series(rows=2, seconds=600.0, gpu0__util=80.0)])])
    assert None not in panel.lines[0].values


def test_thinning_keeps_the_mean() -> None:
    panel = Panel("x", "", tuple(map(float, range(1000))), (Line("a", tuple(map(float, range(1000)))),))
    thin = pictures.thinned(panel, 100)
    assert len(thin.times) == 100
    assert sum(filter(None, thin.lines[0].values)) / 100 == pytest.approx(499.5)


def test_newest_rows_replace_the_merged_row_that_was_made_of_them() -> None:
    merged = series(rows=1, seconds=40.0, gpu0__util=50.0)
    recent = series(rows=4, seconds=10.0, gpu0__util=50.0)
    both = joined(merged, recent)
    assert both.times == recent.times
    assert sum(both.seconds) == 40.0


def test_older_merged_rows_stay() -> None:
    merged = series(rows=3, seconds=40.0, gpu0__util=50.0)
    recent = series(rows=4, seconds=10.0, gpu0__util=60.0)
    recent.times = [time + 80 for time in recent.times]
    both = joined(merged, recent)
    assert sum(both.seconds) == 120.0
    assert both.times == [1040.0, 1080.0, 1090.0, 1100.0, 1110.0, 1120.0]


def test_speed_has_an_uncertainty_that_covers_the_truth() -> None:
    random, covered = Random(5), 0
    for _ in range(200):
        one = series(rows=60, rank0__steps=1.0)
        one.values["rank0.steps"] = [random.gauss(2.0, 0.2) for _ in range(60)]
        found = speed([one])
        assert found is not None
        assert found.error is not None
        covered += abs(found.mean - 2.0) <= found.error
    assert 180 <= covered <= 200, "95 of 100 intervals"


def test_rows_of_an_evaluation_do_not_slow_the_speed() -> None:
    one = series(rows=8, rank0__steps=2.0)
    one.values["rank0.running.share"] = [1.0] * 6 + [0.5, 0.0]
    one.values["rank0.steps"] = [2.0] * 6 + [1.0, 0.0]
    found = speed([one])
    assert found is not None
    assert found.mean == pytest.approx(2.0)


def test_few_rows_tell_no_uncertainty() -> None:
    found = speed([series(rows=2, rank0__steps=3.0)])
    assert found is not None
    assert found.error is None


def test_configs_differ_in_what_differs() -> None:
    configs = [{"a": {"b": 1, "c": True}, "x": []}, {"a": {"b": 1.0, "c": False}, "y": None}]
    assert differing([flat(config) for config in configs]) == {"a.c": [True, False], "x": [[], None]}


def recent_file(run: RunFolder, node: str, rows: int, now: float) -> Path:
    path = run.recent_series(0, node)
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = ["gpu0.util", "gpu0.memory", "gpu0.power", "rank0.steps"]
    header = {"slurmopt_series": 1, "node": node, "attempt": 0, "columns": columns, "facts": GPUS}
    header["absent"] = {"gpu0.temperature": NOT_SUPPORTED}
    lines = [json.dumps([now - 10 * (rows - row - 1), 10, 12 * row, 2**30, 500, 2.5]) for row in range(rows)]
    path.write_text("\n".join([json.dumps(header), *lines]) + "\n")
    return path


def test_live_lines_are_of_the_newest_rows(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "n" / "1")
    recent_file(run, "node1", 9, 2000.0)
    (line,) = plain(Live(run, 0).lines(2005.0)).splitlines()
    assert line.split() == [
        "node1", "GPU", "0", "▁▁▂▃▄▅▆▇█", "96", "%", "1.0", "GiB", "of", "80.0", "GiB", "500", "W", "not", "supported",
        "2.5", "steps/s",
    ]  # fmt: skip


def test_without_series_or_with_old_ones_there_are_no_live_lines(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "n" / "1")
    assert Live(run, 0).lines(2005.0) == []
    recent_file(run, "node1", 3, 2000.0)
    assert Live(run, 0).lines(9000.0) == []


def test_many_nodes_are_a_line_each_and_counted(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "n" / "1")
    for index in range(40):
        recent_file(run, f"node{index:02d}", 3, 2000.0)
    lines = plain(Live(run, 0).lines(2005.0, most=10)).splitlines()
    assert len(lines) == 11
    assert lines[-1].strip() == "and 30 more nodes"


def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "n" / "1")
    path = recent_file(run, "node1", 3, 2000.0)
    live = Live(run, 0)
    first = live.lines(2001.0)
    kept = live._kept["node1"].series
    assert live.lines(2001.0) == first
    assert live._kept["node1"].series is kept
    path.write_text(path.read_text() + "[2010, 10, 100, 1073741824, 500, 2.5]\n")
    assert live.lines(2011.0) != first
