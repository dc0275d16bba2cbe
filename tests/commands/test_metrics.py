"""`slurmopt metrics`: a table, CSV, JSON and Parquet, in which zero and the three kinds of nothing stay apart."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from json_answer import data_of

from slurmopt.cli import main
from slurmopt.job.monitor.series_writer import SeriesWriter
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import NotRegular
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.metrics.files import new_file

START = 1_800_000_000.0
ABSENT = {"gpu0.sm": "not supported", "gpu1.sm": "not supported", "gpu0.others": "not allowed"}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.chdir(tmp_path)
    folder = RunFolder(tmp_path / "runs" / "mine" / "1")
    folder.make()
    folder.config.write_text("task: {}\n")
    folder.script.write_text("#!/bin/bash\n")
    events.append(folder.events, "created", name="mine", id="1", cwd=str(tmp_path))
    return folder


def measure(run: RunFolder, node: str, attempt: int = 0, busy: float = 50.0, rows: int = 70) -> None:
    """A node with two GPUs: gpu0 is busy, gpu1 is not, and its power is not measured in the first row."""
    (run.attempt_logs(attempt)).mkdir(exist_ok=True)
    writer = SeriesWriter(run, attempt, node)
    for at in range(rows):
        values = {"gpu0.util": busy, "gpu1.util": 0.0, "rank0.step": at, "gpu0.memory_peak": 1e9 + at}
        values |= {"gpu1.power": 100.0} if at else {}
        values |= {"rank0.input.share": 0.25, "net.eth0.rx": 3e6}
        facts = {"gpus": [{"index": 0}, {"index": 1}]}
        writer.row(START + 10 * (at + 1), 10, values, facts, ABSENT)
    writer.event({"event": "xid", "time": START, "gpu": 0, "xid": 79})
    writer.finish()


def metrics(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["metrics", *words]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    status = main(["metrics", *words])
    told = capsys.readouterr()
    assert (status, told.out) == (2, "" if "--json" not in words else told.out)
    assert told.err.count("\n") == 1
    return told.err


def lines(text: str) -> dict[str, str]:
    return {line.split()[0]: " ".join(line.split()[1:]) for line in text.splitlines() if line.strip()}


def test_the_table_has_means_extremes_and_reasons(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    measure(run, "n1")
    measure(run, "n2", busy=90)
    table = metrics(capsys, "mine")
    assert table.startswith("mine/1, attempt 0, 2 nodes: 11m40s until ")
    found = lines(table)
    assert found["gpu.util"] == "35 % 0 % n1 gpu1 90 % n2 gpu0 90 %"
    assert found["gpu.sm"] == "not supported"
    assert found["gpu.others"] == "not allowed"
    assert found["rank.step"] == "69 n1 rank0 69 n1 rank0 69"
    assert found["rank.input.share"].startswith("25 %")
    assert found["net.rx"].startswith("2.9 MiB/s")
    assert found["gpu.memory_peak"].endswith("953.7 MiB")
    assert found["n1:"] == "xid"


def test_one_gpu_of_one_node_and_the_last_minutes(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    measure(run, "n1")
    measure(run, "n2", rows=60)
    found = data_of(metrics(capsys, "mine", "--json", "--node", "n1", "--gpu", "1", "--since", "2m"))
    (node,) = found["nodes"]
    assert node["times"] == [START + 10 * at for at in range(59, 71)]
    assert set(node["values"]) == {"gpu1.util", "gpu1.power"}
    assert node["absent"] == {"gpu1.sm": "not supported"}


def test_json_has_zero_null_and_reasons(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    measure(run, "n1", rows=3)
    found = data_of(metrics(capsys, "mine", "--json"))
    assert (found["run"], found["attempt"], found["problems"]) == (str(run.path), 0, [])
    (node,) = found["nodes"]
    assert node["values"]["gpu1.util"] == [0, 0, 0]
    assert node["values"]["gpu1.power"] == [None, 100, 100]
    assert node["absent"] == ABSENT
    assert [event["xid"] for event in node["events"]] == [79]


def test_csv_has_a_row_for_each_interval_with_words_for_nothing(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(run, "n1", rows=2)
    measure(run, "n2", rows=2)
    rows = list(csv.DictReader(io.StringIO(metrics(capsys, "mine", "--csv"))))
    assert [(row["node"], float(row["time"]) - START, row["seconds"]) for row in rows] == [
        ("n1", 10, "10.0"),
        ("n1", 20, "10.0"),
        ("n2", 10, "10.0"),
        ("n2", 20, "10.0"),
    ]
    kinds = [rows[0][column] for column in ("gpu1.util", "gpu0.sm", "gpu0.others", "gpu1.power")]
    assert kinds == ["0.0", "not supported", "not allowed", "not measured"]


def test_attempts(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    measure(run, "n1", attempt=0, rows=2)
    run.attempt_logs(1).mkdir()
    measure(run, "n1", attempt=2, rows=4)
    run.attempt_logs(3).mkdir()
    assert data_of(metrics(capsys, "mine", "--json"))["attempt"] == 2
    assert data_of(metrics(capsys, "mine", "--json", "--attempt", "0"))["attempt"] == 0
    assert "attempt 1 has no series; valid: 0,2" in refused(capsys, "mine", "--attempt", "1")


def test_what_is_not_there_is_said_with_what_is(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert "mine/1 has no series: the sampler is off (monitor.sampler=false)" in refused(capsys, "mine")
    measure(run, "n1", rows=2)
    assert "no series of n7; valid: n1" in refused(capsys, "mine", "--node", "n7")
    assert "no values of GPU 5; valid: 0-1" in refused(capsys, "mine", "--gpu", "5")
    assert "'soon'" in refused(capsys, "mine", "--since", "soon")
    assert "'-1'" in refused(capsys, "mine", "--gpu=-1")
    assert "not allowed with" in refused(capsys, "mine", "--csv", "--json")


def test_a_node_whose_series_is_newer_or_no_file_is_a_line_beside_the_others(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(run, "n1", rows=2)
    measure(run, "n2", rows=2)
    run.series(0, "n2").write_text('{"slurmopt_series": 9}\n')
    assert main(["metrics", "mine", "--json"]) == 0
    told = capsys.readouterr()
    assert [node["node"] for node in data_of(told.out)["nodes"]] == ["n1"]
    assert told.err.count("\n") == 1
    assert "its format is 9" in told.err
    run.series(0, "n1").unlink()
    run.recent_series(0, "n1").unlink()
    assert main(["metrics", "mine"]) != 0
    assert "its format is 9" in capsys.readouterr().err


def test_names_of_somebody_elses_cannot_write_to_the_terminal(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    run.attempt_logs(0).mkdir()
    run.series(0, "n1").parent.mkdir(parents=True)
    header = {
        "slurmopt_series": 1,
        "node": "\x1b[31mn1",
        "attempt": 0,
        "columns": ["\u202egpu0.util", "a.\u00a0b", "gpu0.x"],
    }
    rows = ["[1e300, 1, 1, 2, 3]", "[1800000000, 1e300, 1, 2, 3e307]", '{"event": "\\u001b[2J", "time": 1}']
    run.series(0, "n1").write_text("\n".join([json.dumps({**header, "columns": ["gpu0.x", "y", "z"]}), *rows]) + "\n")
    for words in ((), ("--json",), ("--csv",), ("--since", "1h")):
        assert "\x1b" not in metrics(capsys, "mine", *words)


def test_parquet_without_pyarrow_says_what_to_install(
    run: RunFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(run, "n1", rows=2)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install pyarrow" in refused(capsys, "mine", "--parquet", "out.parquet")
    assert not Path("out.parquet").exists()


def test_parquet(run: RunFolder, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    parquet: Any = pytest.importorskip("pyarrow.parquet", reason="NOT TESTED: pyarrow is not installed")
    assert isinstance(parquet, types.ModuleType)
    measure(run, "n1", rows=2)
    measure(run, "n2", rows=3)
    assert metrics(capsys, "mine", "--parquet", "out.parquet") == ""
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column("node").to_pylist() == ["n1"] * 2 + ["n2"] * 3
    assert table.column("gpu1.util").to_pylist() == [0] * 5
    assert table.column("gpu1.power").to_pylist() == [None, 100, None, 100, 100]
    assert table.schema.field("gpu0.sm").metadata == {b"absent": b"not supported"}
    assert (tmp_path / "out.parquet").stat().st_mode & 0o027 == 0
    assert "cannot be written" in refused(capsys, "mine", "--parquet", str(tmp_path / "no" / "out"))


def test_a_file_of_values_is_not_written_through_what_is_in_its_place(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("mine")
    link.symlink_to(target)
    with new_file(link) as file:
        file.write(b"new")
    assert (target.read_text(), link.read_text(), link.is_symlink()) == ("mine", "new", False)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(NotRegular), new_file(tmp_path / "fifo"):
        pass
    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "half"):
        _ = 1 / 0
    assert {path.name for path in tmp_path.iterdir()} == {"target", "link", "fifo"}
