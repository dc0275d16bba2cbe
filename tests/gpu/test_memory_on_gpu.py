"""GPU memory that is too small: micro-batches are split, and a cache that is given back again and again is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from slurmopt.job.memory import lines
from slurmopt.job.memory.gauge import gauge
from slurmopt.job.memory.history import History
from slurmopt.job.memory.peaks import Peaks
from slurmopt.job.memory.spans import Spans
from slurmopt.training import Steps

GIB = 2**30


@pytest.fixture(autouse=True)
def _all_memory() -> Iterator[None]:
    torch.cuda.empty_cache()
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def limit_memory(size: float) -> None:
    """As if the GPU had `size` bytes."""
    torch.cuda.set_per_process_memory_fraction(size / torch.cuda.get_device_properties(0).total_memory)


def deep() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Each sample keeps 64 MiB for the backward pass."""
    torch.manual_seed(1)
    layers = [module for _ in range(8) for module in (nn.Linear(256, 256), nn.GELU())]
    model = nn.Sequential(*layers).cuda()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def weights_after(steps: Steps, model: nn.Module, samples: int) -> list[torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(2)
    for _ in range(3):
        batch = torch.randn(samples, 4096, 256, device="cuda", generator=generator)
        assert steps.run(lambda x: (model(x) - x).square().mean(), batch)
    return [each.detach().clone() for each in model.parameters()]


def test_a_micro_batch_that_does_not_fit_is_split_and_gives_the_same_weights(capfd: pytest.CaptureFixture[str]) -> None:
    model, optimizer = deep()
    whole = weights_after(Steps(model, optimizer), model, 48)
    needed = torch.cuda.max_memory_allocated()
    del model, optimizer
    torch.cuda.empty_cache()
    limit_memory(0.8 * needed)
    model, optimizer = deep()
    steps = Steps(model, optimizer, out_of_memory="split")
    split = weights_after(steps, model, 48)
    for one, other in zip(whole, split, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert "the step is done again, with each micro-batch in 2 parts" in capfd.readouterr().err
    assert steps.skipped == 0


def test_a_cache_that_is_given_back_again_and_again_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(16, 16).cuda()
    steps = Steps(model, torch.optim.SGD(model.parameters(), lr=0.1))
    limit_memory(2 * GIB)
    for number in range(40):
        held = torch.empty(GIB + number * 2**22, dtype=torch.uint8, device="cuda")
        steps.run(lambda x: model(x).square().mean(), torch.ones(8, 16, device="cuda"))
        del held
    told = capfd.readouterr().err
    assert "GPU memory is nearly full: its cache was given back" in told
    assert told.count("GPU memory is nearly full") == 1


def test_what_a_line_allocates_is_found_by_the_line() -> None:
    history = History(torch.cuda.memory)
    try:
        before = lines.of_gpu(torch.cuda.memory._snapshot())
        kept = [torch.empty(2**20, device="cuda") for _ in range(3)]  # this line
        after = lines.of_gpu(torch.cuda.memory._snapshot())
    finally:
        history.close()
    (row,) = [row for row in lines.rows(before, after) if row["grown"]]
    number = next(
        n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("# this line")
    )
    assert f"{Path(__file__).name}:{number}" in row["stack"][0]
    assert (row["grown"], row["grown_blocks"]) == (len(kept) * 2**22, 3)


def test_peaks_of_phases_and_modules_are_those_of_the_tensors() -> None:
    model, optimizer = deep()
    peaks = Peaks(gauge())
    spans = Spans(peaks)
    for _ in range(2):
        model(torch.randn(16, 4096, 256, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    spans.close()
    found = {peak.name: peak for peak in spans.phases()}
    modules = {peak.name: peak for peak in spans.modules()}
    activation = 16 * 4096 * 256 * 4
    assert found["forward"].kept >= 15 * activation
    assert modules["module 3 (GELU)"].kept == activation
    assert found["loss and backward"].most >= found["forward"].most
    assert found["optimizer"].most < found["forward"].most
