"""Trace files that are damaged, large, hostile, or not there."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from profiling.simulated_traces import THREAD, Gpu
from report.browser import CONTRAST, Browser
from report.conftest import chromium
from runs.conftest import make_run

from slurmopt.cli import main
from slurmopt.errors import InputError
from slurmopt.runs.profiling import traces
from slurmopt.runs.profiling.traces import read_file

__all__ = ["chromium", "make_run"]
EVIL = "<img src=x onerror=alert(1)>\x1b[31m\nslurmopt: error: red"


def some(rows: int = 3) -> Gpu:
    gpu = Gpu()
    for at in range(rows):
        gpu.mark("Optimizer.step#SGD.step", 100.0 * at, 10)
        gpu.kernel("gemm", 100.0 * at + 20, 50, 100.0 * at + 12)
    return gpu


def text_of(gpu: Gpu) -> str:
    return json.dumps({**gpu.head, "traceEvents": gpu.rows, "traceName": "x"})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", 'not a trace of the profiler: no "traceEvents"'),
        (b'{"traceEvents": []}', "no events of an operator or kernel"),
        (b'{"loss": 1}', 'not a trace of the profiler: no "traceEvents"'),
        (b'{"a": {"traceEvents": [1, 2]}}', "not a trace of the profiler: it is not valid JSON"),
        (b'{"traceEvents": [{"ph": "X"', "the trace is not complete: it ends within its events"),
        (b'{"traceEvents": [{"ph": "X"}', "the trace is not complete: it ends within its events"),
        (b'{"traceEvents": [' + b"[" * 200_000, "not a trace of the profiler: an event is nested too deep"),
        (gzip.compress(text_of(some()).encode())[:-60], "the trace is not complete"),
        (gzip.compress(b"x" * 100)[:-4] + b"\0\0\0\0", "the trace is not complete"),
        (b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": 7, "ts": "x", "dur": null}, 3, null]}', "no events"),
    ],
    ids=[
        "empty",
        "no events",
        "other JSON",
        "elsewhere",
        "in a row",
        "after a row",
        "nested",
        "cut",
        "length",
        "types",
    ],
)
def test_what_is_no_whole_trace_is_told_in_a_line(
    content: bytes, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd.json").write_bytes(content)
    assert main(["profile", "show", str(tmp_path / "odd.json")]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[-1].startswith(f"slurmopt: error: {tmp_path}/odd.json: ")
    assert why in told.err


def test_a_file_that_never_ends_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank-0.json")
    with pytest.raises(InputError, match=r"rank-0\.json: it is a FIFO"):
        read_file(tmp_path / "rank-0.json")


def test_more_events_than_fit_into_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurmopt.profiling.trace.MOST_EVENTS", 5)
    with pytest.raises(InputError, match="more than 5 events; trace fewer steps"):
        read_file(some().write(tmp_path / "rank-0.json.gz"))


@pytest.mark.parametrize("spaced", [False, True])
def test_events_are_read_whole_wherever_a_piece_of_the_file_ends(tmp_path: Path, spaced: bool) -> None:
    gpu = some(20_000)  # more than the megabyte that is read at a time
    text = json.dumps({**gpu.head, "traceEvents": gpu.rows}, indent=2 if spaced else None)
    (tmp_path / "trace.json").write_text(text)
    assert len(read_file(tmp_path / "trace.json").events) == len(gpu.rows)
    (tmp_path / "list.json").write_text(json.dumps(gpu.rows))
    assert len(read_file(tmp_path / "list.json").events) == len(gpu.rows)


def test_names_out_of_a_trace_are_only_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], chromium: Browser
) -> None:
    gpu = some()
    gpu.mark(EVIL, 172, 28)
    gpu.row("kernel", EVIL, 170, 1, {"pid": 0, "tid": 7})
    gpu.row("cpu_op", EVIL, 0, 1, THREAD)
    gpu.write(tmp_path / "rank-0.json.gz")
    page = tmp_path / "page.html"
    assert main(["profile", "show", str(tmp_path), "--html", str(page)]) == 0
    told = capsys.readouterr()
    assert "\x1b" not in told.out
    assert not any(line.startswith("slurmopt: error") for line in told.out.splitlines())
    assert page.stat().st_mode & 0o077 == 0
    chromium.show(1100, dark=False)
    chromium.open(page)
    assert "<img src=x onerror=alert(1)>" in str(chromium.value("document.body.innerText"))
    assert chromium.value("document.images.length") == 0
    assert chromium.requests() == [page.as_uri()]
    assert chromium.value(CONTRAST) == []
    widths = (
        "[...document.querySelectorAll('.rank .ledger i')].reduce((sum, i) => sum + i.getBoundingClientRect().width, 0)"
    )
    whole = chromium.value("document.querySelector('.rank .ledger').getBoundingClientRect().width")
    assert chromium.value(widths) == pytest.approx(whole, rel=0.01)


def test_a_run_without_traces_says_how_to_make_some(
    make_run: Callable[..., object], capsys: pytest.CaptureFixture[str]
) -> None:
    make_run()
    assert main(["profile", "show", "mine"]) == 2
    assert "mine/20261121-120000-aaaa has no traces; while it runs, slurmopt profile " in capsys.readouterr().err
    assert main(["profile", "compare", "mine"]) == 2
    assert "has no captures; valid: two" in capsys.readouterr().err


def test_a_run_has_its_newest_capture_shown(
    make_run: Callable[..., object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run()
    (run,) = (tmp_path / "runs" / "mine").iterdir()
    for name, at in (("a0-first", 1.0), ("a0-second", 2.0), ("a0-failed", 3.0)):
        folder = run / "traces" / name
        folder.mkdir(parents=True)
        ranks = {"0": {"file": "rank-0.json.gz"}, "3": {"error": "it did not answer"}}
        (folder / "capture.json").write_text(json.dumps({"reason": "asked", "requested_at": at, "ranks": ranks}))
        if name != "a0-failed":
            some().write(folder / "rank-0.json.gz")
    assert main(["profile", "show", "mine"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("mine/20261121-120000-aaaa, a0-second\n  rank 3 has no trace: it did not answer\n")
    assert main(["profile", "show", "mine", "--capture", "a0-first"]) == 0
    assert "a0-first" in capsys.readouterr().out
    assert main(["profile", "show", "mine", "--capture", "a0-third"]) == 2
    assert "no capture 'a0-third' with a trace; there is: a0-second, a0-first" in capsys.readouterr().err
    assert main(["profile", "compare", "mine"]) == 0
    assert "WHERE: nothing became slower" in capsys.readouterr().out
    assert [one.folder.name for one in traces.captures_of(traces.find("mine", tmp_path / "runs"))][1:] == [
        "a0-second",
        "a0-first",
    ]
