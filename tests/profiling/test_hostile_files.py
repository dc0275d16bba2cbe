"""Traces, results and captures that somebody has edited: one line, no escape codes, no hang."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from profiling.simulated_traces import THREAD, Gpu

from slurmopt.cli import main
from slurmopt.profiling import trace
from slurmopt.run_folder import captures
from slurmopt.run_folder.captures import MEMORY, Capture
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.profiling.memory_records import records
from slurmopt.runs.profiling.traces import captures_of

ESCAPE = "\x1b[31mred\x1b]0;title\x07"


def show(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit status of `profile show`, and all that it prints."""
    status = main(["profile", "show", str(path)])
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err
    return status, told.out + told.err


def steps(gpu: Gpu, ends: list[float]) -> None:
    for number, end in enumerate(ends):
        gpu.row("user_annotation", f"Optimizer.step#SGD.step{number}", end, 0, THREAD)


@pytest.mark.parametrize("correlation", [[1], {"a": 1}, "x" * 10**6, None, 1e300])
def test_arguments_of_any_type(correlation: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpu = Gpu()
    gpu.row("cuda_runtime", "cudaLaunchKernel", 0, 5, THREAD, correlation=correlation)
    gpu.row("kernel", "k", 10, 10, {"pid": 0, "tid": 7}, correlation=correlation, stream=correlation, Seq=correlation)
    gpu.row("kernel", "nccl_x", 30, 10, {"pid": 0, "tid": 7}, Seq=correlation, **{"Collective name": correlation})
    assert show(gpu.write(tmp_path / "t.json.gz"), capsys)[0] == 0


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ([(5, 0), (5, 0)], "covers no time"),
        ([(5, -3), (5, -1)], "covers no time"),
        ([(1e308, 1e308), (-1e308, 1e308)], "no events"),
        ([(0, 1e308), (0, 1e300)], "no events"),
        ([(0, 1e-300), (0, 1e-300)], ""),
    ],
)
def test_times_that_cannot_be(
    times: list[tuple[float, float]], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = Gpu()
    for start, duration in times:
        gpu.row("cpu_op", "aten::mm", start, duration, THREAD)
    status, told = show(gpu.write(tmp_path / "t.json.gz"), capsys)
    assert "Traceback" not in told
    assert said in told
    assert status == (2 if said else status)


def test_steps_that_end_at_one_instant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpu = Gpu()
    gpu.row("cpu_op", "aten::mm", 0, 50, THREAD)
    steps(gpu, [10, 10, 10, 10, 10, 10])
    assert "Traceback" not in show(gpu.write(tmp_path / "t.json.gz"), capsys)[1]


def bomb(path: Path, begins: bytes, unit: bytes, count: int) -> Path:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(begins)
        piece = unit * 100_000
        for _ in range(count // 100_000):
            file.write(piece)
    return path


@pytest.mark.parametrize(
    ("begins", "unit"),
    [(b"", b" "), (b'{"traceEvents":[', b" "), (b'{"traceEvents":[', b","), (b'{"a":"', b"x")],
    ids=["spaces first", "spaces between", "commas", "a long head"],
)
def test_text_without_end_is_refused(
    begins: bytes, unit: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trace, "_MOST_TEXT", 20_000_000)
    status, told = show(bomb(tmp_path / "t.json.gz", begins, unit, 60_000_000), capsys)
    assert status == 2
    assert "more than 20,000,000 characters" in told or 'no "traceEvents"' in told


def test_rows_that_are_not_needed_count_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trace, "_MOST_READ", 50_000)
    status, told = show(bomb(tmp_path / "t.json.gz", b'{"traceEvents":[', b'{"ph":"M"},', 200_000), capsys)
    assert (status, "more than 50,000 rows" in told) == (2, True)


def test_names_with_escape_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpu = Gpu()
    gpu.row("cpu_op", f"aten::{ESCAPE}", 0, 50, THREAD)
    folder = tmp_path / f"a0-{ESCAPE.replace('/', '')}"
    folder.mkdir()
    gpu.write(folder / f"rank-0{ESCAPE}.json.gz")
    assert show(folder, capsys)[0] == 0


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "runs" / "test" / "one")
    run.make()
    (run.heartbeats / "attempt-0").mkdir()
    return run


ASKED = Capture(
    name="a0-20260101T000000", attempt=0, reason="asked", requested_at=1.0, start=1.0, seconds=1.0, ranks=[0]
)
ODD: list[Any] = ["x", [], {}, None, 1e400, True]


@pytest.mark.parametrize("name", ["requested_at", "start", "seconds", "ranks", "name", "steps"])
def test_a_request_that_is_not_valid_is_none(run: RunFolder, name: str) -> None:
    captures.open_capture(run, ASKED)
    asked = json.loads(run.trace_request(0).read_text())
    assert captures.requested(run, 0) is not None
    values = (
        [*ODD, [[1]], ["x"], [None], -1, 10**9] if name == "ranks" else [value for value in ODD if value is not True]
    )
    for value in values:
        if (name, value) in (("ranks", []), ("steps", None)):
            continue
        run.trace_request(0).write_text(json.dumps({**asked, name: value}))
        assert captures.requested(run, 0) is None, value


def test_other_files_among_the_captures_hide_no_record(run: RunFolder) -> None:
    captures.open_capture(run, Capture(**{**vars(ASKED), "kind": MEMORY}))
    record = run.capture(ASKED.name) / "rank-0.memory.json"
    record.write_text('{"steps": 5}')
    (run.traces / "a0-file").write_text("x")
    (run.traces / "a0-empty").mkdir()
    os.symlink("/nowhere", run.traces / "a0-link")
    told = run.capture(ASKED.name) / "capture.json"
    value = json.loads(told.read_text())
    told.write_text(json.dumps({**value, "step_times": {"9" * 5000: 1.0, "0": 0.5}}))
    found = records(run)
    assert (found.ranks, found.step_times) == ({0: {"steps": 5}}, {0: 0.5})


def test_ranks_of_a_capture_that_are_no_ranks(run: RunFolder) -> None:
    captures.open_capture(run, ASKED)
    told = run.capture(ASKED.name) / "capture.json"
    value = json.loads(told.read_text())
    told.write_text(
        json.dumps({**value, "ranks": {"9" * 5000: {"error": "x"}, "1": {"error": "no"}, "²": {"error": "y"}}})
    )
    (source,) = captures_of(run)
    assert source.failed == {1: "no"}
