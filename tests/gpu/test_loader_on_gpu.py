"""The loader's copies to a GPU: the batches of a plain loader, copied while kernels of the batch before run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from slurmopt.training import loader

SIZE, BATCH, WIDTH = 96, 8, 2**19


@pytest.fixture(scope="module")
def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.arange(SIZE), torch.randn(SIZE, WIDTH, generator=generator))


def work(batch: Any) -> torch.Tensor:
    """Some milliseconds of kernels, which need all of the batch."""
    torch.cuda._sleep(20_000_000)
    total: torch.Tensor = batch[1].double().sum(1)
    return total


@pytest.mark.parametrize("workers", [0, 2])
def test_the_batches_are_those_of_a_plain_loader(data: TensorDataset, workers: int) -> None:
    plain = [work([one.cuda() for one in batch]) for batch in DataLoader(data, batch_size=BATCH)]
    ours = [work(batch) for batch in loader(data, batch_size=BATCH, num_workers=workers, device="cuda")]
    assert torch.equal(torch.cat(plain), torch.cat(ours))


def test_workers_are_forked_beside_garbage_of_earlier_epochs(data: TensorDataset) -> None:
    kept = []
    for _ in range(4):
        batches = loader(data, batch_size=BATCH, num_workers=2, persistent_workers=False, device="cuda")
        kept.append(sum(int(batch[0].sum()) for batch in batches))
        pinned = torch.empty(10, pin_memory=True)
        pinned.cuda(non_blocking=True)
        ring: list[object] = [torch.cuda.Event(), pinned]
        ring.append(ring)  # only the garbage collector finds it
    assert kept == [SIZE * (SIZE - 1) // 2] * 4


def test_copies_run_beside_kernels_and_their_time_is_told(data: TensorDataset, tmp_path: Path) -> None:
    batches = loader(data, batch_size=BATCH, num_workers=2, device="cuda")
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as recorded:
        for batch in batches:
            work(batch)
        torch.cuda.synchronize()
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    copies = [span(event) for event in events if event.get("cat") == "gpu_memcpy" and "HtoD" in event["name"]]
    copies = [(begin, end) for begin, end in copies if end - begin > 50]  # microseconds: not the sample numbers
    kernels = [span(event) for event in events if event.get("cat") == "kernel"]
    beside = sum(max(0.0, min(end, e) - max(begin, b)) for begin, end in copies for b, e in kernels)
    assert len(copies) == SIZE // BATCH
    assert beside > 0.7 * sum(end - begin for begin, end in copies)
    seconds = sum(end - begin for begin, end in copies) / 1e6
    assert 0.9 * seconds < batches.costs.copy < seconds + 1e-3 * len(copies)  # with the time to queue each copy


def span(event: dict[str, Any]) -> tuple[float, float]:
    return event["ts"], event["ts"] + event["dur"]
