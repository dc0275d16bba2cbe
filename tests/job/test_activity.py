"""Signs of life of a rank that reports no step: real files and processes; NVML is simulated, for there is no GPU."""

from __future__ import annotations

import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
from job.harness import wait_for

from slurmopt.job.facts.rank_facts import facts_from
from slurmopt.job.heartbeat.activity import Activity

BYTES = 64 << 20


def begun() -> Activity:
    activity = Activity(facts_from({}))
    assert not activity.seen()
    return activity


def test_what_reads_and_writes_works_and_what_waits_does_not(tmp_path: Path) -> None:
    activity = begun()
    (tmp_path / "data").write_bytes(bytes(BYTES))
    assert activity.seen()
    time.sleep(0.2)
    assert not activity.seen()  # though each look reads all of /proc
    assert len((tmp_path / "data").read_bytes()) == BYTES
    assert activity.seen()


def test_what_was_done_before_a_step_does_not_count_after_it(tmp_path: Path) -> None:
    activity = begun()
    (tmp_path / "data").write_bytes(bytes(BYTES))
    activity.forget()
    assert not activity.seen()


def test_the_workers_of_a_rank_count(tmp_path: Path) -> None:
    activity, data = begun(), tmp_path / "data"
    words = f"head -c {BYTES} /dev/zero > {data}; sleep 100"
    with subprocess.Popen(["bash", "-c", f"({words})"], start_new_session=True) as worker:
        try:
            wait_for(lambda: data.exists() and data.stat().st_size == BYTES, "the worker's data")
            wait_for(lambda: activity.seen() or (data.write_bytes(b""), False)[1], "a sign of life")
        finally:
            subprocess.run(["pkill", "-KILL", "-s", str(worker.pid)], check=False)


@pytest.mark.parametrize(("percent", "is_busy"), [(60, True), (0, False)])
def test_simulated_nvml_a_gpu_works_where_its_memory_does(
    monkeypatch: pytest.MonkeyPatch, percent: int, is_busy: bool
) -> None:
    """A collective that waits for ever keeps the GPU itself at 100 %."""
    simulated = types.SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=int,
        nvmlDeviceGetUtilizationRates=lambda handle: types.SimpleNamespace(gpu=100, memory=percent),
    )
    monkeypatch.setitem(sys.modules, "pynvml", simulated)  # type: ignore[arg-type]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert begun().seen() is is_busy
