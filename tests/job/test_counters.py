"""What a training counts: sums over calls, operations, and the peaks of its memory."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from slurmopt import flops_per_token
from slurmopt.errors import JobError
from slurmopt.job.heartbeat import torch_memory
from slurmopt.job.heartbeat.counters import Counters


def test_steps_count_from_where_the_attempt_continues() -> None:
    counters = Counters()
    for step in (1000, 1001, 1001, 1000, 1011):  # told twice, told late, told each tenth step
        counters.stepped(step)
    assert counters.totals() == {"steps": 12}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -3.0])
def test_what_is_no_amount_spoils_no_sum(value: float) -> None:
    counters = Counters()
    for each in (5.0, value, 6.0):
        counters.add("tokens", each)
    assert counters.totals() == {"tokens": 11}


def test_operations_follow_a_model_that_changes() -> None:
    counters = Counters()
    counters.add("tokens", 10)
    counters.set_flops("tokens", 2.0, None)
    counters.add("tokens", 10)
    counters.set_flops("tokens", 5.0, 6.0)
    counters.add("tokens", 10)
    counters.add("samples", 10)
    assert counters.totals() == {"tokens": 30, "samples": 10, "flops": 90, "hardware_flops": 60}


@pytest.mark.parametrize("flops", [0, -1.0, float("nan"), float("inf"), "1e9", None])
def test_a_wrong_number_of_operations_is_refused(flops: Any) -> None:
    with pytest.raises(JobError, match=r"flops_per_token: .* valid: a number above 0"):
        flops_per_token(flops)


def test_peaks_of_torchs_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated: two GPUs, of which torch forgets the peaks when the training resets them."""
    gpus = [{"allocated_bytes.all.peak": 5, "reserved_bytes.all.peak": 8}, {"allocated_bytes.all.peak": 2}]
    cuda = SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 2, memory_stats=lambda number: gpus[number]
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    counters = Counters()
    torch_memory.read(counters)
    assert counters.totals() == {"memory_allocated_peak": 7, "memory_reserved_peak": 8}
    gpus[0]["allocated_bytes.all.peak"], gpus[0]["reserved_bytes.all.peak"] = 1, 9
    torch_memory.read(counters)
    assert counters.totals() == {"memory_allocated_peak": 7, "memory_reserved_peak": 9}


def test_without_a_gpu_in_use_there_is_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated: CUDA that nobody has initialised must stay so, and a backend that fails gives nothing."""

    def fail(*_: object) -> int:
        raise RuntimeError("CUDA is initialised by this")

    counters = Counters()
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    torch_memory.read(counters)
    for in_use in (False, True):
        cuda = SimpleNamespace(is_initialized=lambda now=in_use: now, device_count=fail, memory_stats=fail)
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
        torch_memory.read(counters)
    assert counters.totals() == {}
