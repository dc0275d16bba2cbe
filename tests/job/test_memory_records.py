"""What a process records of its memory: peaks of nested spans, phases and modules, lines, and a disk that is full."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from job.test_filled_disk import mounted
from torch import nn
from torch.utils.checkpoint import checkpoint

from slurmopt.job.facts.rank_facts import rank_facts
from slurmopt.job.memory import lines
from slurmopt.job.memory.gauge import HostGauge
from slurmopt.job.memory.peaks import Peak, Peaks
from slurmopt.job.memory.spans import Spans, module_name
from slurmopt.job.memory.stored import note_out_of_memory, store
from slurmopt.profiling.memory import sentences
from slurmopt.run_folder import captures
from slurmopt.run_folder.captures import MEMORY, Capture, memory_file
from slurmopt.run_folder.layout import RunFolder

MIB = 2**20


class Written:
    """A gauge whose numbers a test writes."""

    def __init__(self) -> None:
        self.value = self.most = 0

    def set(self, value: int, most: int | None = None) -> None:
        self.value = value
        self.most = max(self.most, value, most or 0)

    def now(self) -> int:
        return self.value

    def peak(self) -> int:
        most, self.most = self.most, self.value
        return most


def test_a_peak_counts_for_all_spans_that_are_open() -> None:
    gauge = Written()
    peaks = Peaks(gauge)
    gauge.set(100)
    peaks.enter("outer")
    gauge.set(110, most=150)
    peaks.enter("inner")
    gauge.set(130, most=400)
    peaks.leave()
    gauge.set(120)
    peaks.leave()
    gauge.set(90, most=500)
    peaks.enter("after")
    peaks.leave()
    assert peaks.found["inner"] == Peak("inner", calls=1, most=400, over=290, kept=20)
    assert peaks.found["outer"] == Peak("outer", calls=1, most=400, over=300, kept=20)
    assert peaks.found["after"] == Peak("after", calls=1, most=90, over=0, kept=0)
    assert peaks.most == 500


def test_after_a_restart_only_what_follows_counts() -> None:
    gauge = Written()
    peaks = Peaks(gauge)
    peaks.enter("rest")
    peaks.enter("inner")
    gauge.set(50, most=900)
    peaks.leave()
    peaks.restart()
    gauge.set(60, most=80)
    peaks.leave()
    assert peaks.found == {"rest": Peak("rest", calls=1, most=80, over=30, kept=10)}
    assert peaks.most == 80


def test_the_peak_of_main_memory_is_forgotten_when_it_is_read() -> None:
    gauge = HostGauge()
    gauge.peak()
    before = gauge.now()
    held = bytearray(100 * MIB)
    held[::4096] = b"\1" * len(held[::4096])
    del held
    assert gauge.peak() > before + 90 * MIB
    assert gauge.peak() < before + 90 * MIB


class Recomputed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = checkpoint(self.layers, x, use_reentrant=False)
        return found


def test_phases_and_modules_follow_the_training_and_not_what_the_backward_pass_computes_again() -> None:
    model = Recomputed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    spans = Spans(Peaks(Written()))
    for _ in range(3):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
    spans.close()
    model(torch.ones(4, 8))  # nothing follows it any more
    assert [(peak.name, peak.calls) for peak in spans.phases()] == [
        ("forward", 3), ("loss and backward", 3), ("optimizer", 3), ("between steps", 4),
    ]  # fmt: skip
    modules = {module_name(peak): peak.calls for peak in spans.modules()}
    assert modules == {"Recomputed": 3, "layers (Sequential)": 3, "layers.0 (Linear)": 3, "layers.1 (ReLU)": 3}


def test_a_forward_pass_that_fails_leaves_no_span_open() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(9, 8))
    spans = Spans(Peaks(Written()))
    for _ in range(2):
        with pytest.raises(RuntimeError):
            model(torch.ones(4, 8))
    spans.close()
    assert {module_name(peak): peak.calls for peak in spans.modules()} == {
        "Sequential": 2, "0 (Linear)": 2, "1 (Linear)": 2,
    }  # fmt: skip


@pytest.fixture
def _traced() -> Iterator[None]:
    tracemalloc.start(lines.FRAMES)
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("_traced")
def test_objects_and_tensors_are_found_by_the_line_that_made_them() -> None:
    before = lines.of_python(), lines.of_cpu_tensors()
    kept: list[Any] = [bytes(10_000) for _ in range(3)]
    kept += [torch.zeros(1000).double() for _ in range(4)]
    kept.append(kept[-1][:10])  # the same memory again
    kept.append(nn.Parameter(torch.zeros(500)))
    after = lines.of_python(), lines.of_cpu_tensors()
    objects, tensors = (
        {row["stack"][0].split("/")[-1]: row for row in lines.rows(*both) if row["grown"] >= 2000}
        for both in zip(before, after, strict=True)
    )
    here = Path(__file__).read_text().splitlines()
    number = next(number for number, line in enumerate(here, 1) if "bytes(10_000)" in line)
    assert objects[f"{Path(__file__).name}:{number}"]["grown_blocks"] in (3, 4)  # the list may count
    found = tensors[f"{Path(__file__).name}:{number + 1}"]
    assert (found["grown"], found["grown_blocks"]) == (4 * 8000, 4)
    assert tensors[f"{Path(__file__).name}:{number + 3}"]["bytes"] == 2000


def capture_of(run: RunFolder) -> Capture:
    made = Capture(
        name="a0-20260101T000000", attempt=0, reason="asked", requested_at=1.0, start=1.0, seconds=1.0, ranks=[0],
        kind=MEMORY,
    )  # fmt: skip
    captures.open_capture(run, made)
    return made


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    yield from mounted(tmp_path / "disk")


def test_a_record_that_finds_no_room_is_told_and_ends_nothing(disk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = RunFolder(disk / "runs" / "test" / "one")
    run.make()
    run.heartbeats.joinpath("attempt-0").mkdir(parents=True)
    asked = capture_of(run)
    store(run, asked, rank_facts(), {"version": 1, "filler": "x" * 2 * MIB}, None)
    (told,) = captures.results(run.capture(asked.name)).values()
    assert "its record is not stored: no space left on device" in told["error"].lower()
    assert "the memory of rank 0 is not recorded" in capfd.readouterr().err
    assert not list(run.capture(asked.name).glob("*memory.json*"))


def test_an_error_for_memory_leaves_a_record(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "runs" / "test" / "one")
    run.make()
    for _ in range(2):  # of two attempts in one test, or a rank that comes second
        note_out_of_memory(run, 3, rank_facts(), torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))
    folder = run.capture("a3-out-of-memory")
    record = json.loads((folder / memory_file(0)).read_text())
    assert record["out_of_memory"] == "CUDA out of memory. Tried to allocate 2 GiB"
    assert record["host"]["pss"][0] > 0
    assert (folder / memory_file(0)).stat().st_mode & 0o077 == 0


ODD = [None, -1, 0, "x", [], {}, [None], [1, 2, 3], {"stack": 3}, [{"stack": ["\x1b[2J"], "grown": 1e99}], float("nan")]


def test_a_record_that_somebody_has_edited_breaks_no_sentence() -> None:
    names = ("gpu", "host", "phases", "modules", "steps", "out_of_memory", "measured")
    inner = ("lines", "tensors", "allocated", "reserved", "free", "total", "pss", "workers", "worker_count")
    for name, value in itertools.product(names, ODD):
        record: dict[str, Any] = {"gpu": {}, "host": {}, "steps": 5, name: value}
        assert all("\x1b" not in said.text for said in sentences(record))
    for part, name, value in itertools.product(("gpu", "host"), inner, ODD):
        said = sentences({"steps": 5, "out_of_memory": "x", part: {"pss": [1, 2], "reserved": [1, 2], name: value}})
        assert all("\x1b" not in row for each in said for row in (each.text, *each.evidence))
