"""Steps on a GPU: each precision gives the very weights of the loop by hand, and nothing waits for the device."""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint.ranks import alone
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from slurmopt.checkpoint import Checkpointer
from slurmopt.training import Ema, Steps, compiled

COUNT, CLIP, SLEEP_CYCLES = 20, 0.5, 2_000_000_000
PRECISIONS = ["bf16", "fp16", "fp32", "tf32"]
EACH_STEP = {"scratch": {"path": None}, "shared": {"every": 1}}
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def made(fused: bool = True) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 256)).cuda()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)


def batches(accumulate: int) -> list[torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(2)
    return [torch.randn(64, 256, device="cuda", generator=generator) for _ in range(COUNT * accumulate)]


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (model(x) - x.roll(1, 1)).square().mean()


def by_hand(precision: str, fused: bool, accumulate: int) -> list[torch.Tensor]:
    model, optimizer = made(fused)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")
    kind = TYPES.get(precision)
    for number, x in enumerate(batches(accumulate), 1):
        with torch.autocast("cuda", kind) if kind else contextlib.nullcontext():
            loss = loss_of(model, x)
        scaler.scale(loss * (1 / accumulate)).backward()
        if number % accumulate == 0:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    return list(model.parameters())


def trained(
    model: nn.Module, optimizer: torch.optim.Optimizer, bad: tuple[int, ...] = (), accumulate: int = 1, **options: Any
) -> Steps:
    """Trains all steps; the loss of those in `bad` is NaN, and the weights after such a step are those before it."""
    steps = Steps(model, optimizer, clip=CLIP, accumulate=accumulate, **options)
    for x in batches(accumulate):
        is_bad = steps.count in bad
        before = [each.detach().clone() for each in model.parameters()] if is_bad else []
        with steps.forward():
            loss = loss_of(model, x)
        if steps.backward(loss * math.nan if is_bad else loss):
            assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=is_bad))
    return steps


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_weights_are_those_of_the_loop_by_hand(precision: str, fused: bool, accumulate: int) -> None:
    hand = by_hand(precision, fused, accumulate)
    torch.set_float32_matmul_precision("highest")
    model, optimizer = made(fused)
    steps = trained(model, optimizer, accumulate=accumulate, precision=precision)
    assert all(torch.equal(*pair) for pair in zip(hand, model.parameters(), strict=True))
    assert (steps.taken + steps.skipped, steps.count) == (COUNT, COUNT)
    if precision != "fp16":  # whose first scale may be too large, by hand too
        assert steps.skipped == 0


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_bad_step_changes_nothing(precision: str, fused: bool) -> None:
    model, optimizer = made(fused)
    bad = (8, 12, 13)
    steps = trained(model, optimizer, bad=bad, precision=precision, schedule=lambda step: 1 / (1 + step))
    assert steps.taken == COUNT - len(bad)
    # With fp16 the scale of the loss may have been too large: it shrinks, and a step is bad once it is 1.
    assert steps.skipped == (0 if precision == "fp16" else len(bad))
    assert all(each.isfinite().all() for each in model.parameters())


@pytest.mark.parametrize("spikes", [None, 8.0])
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_a_fused_optimizer_never_waits_for_the_device(precision: str, spikes: float | None) -> None:
    model, optimizer = made()
    steps = Steps(model, optimizer, clip=CLIP, precision=precision, spikes=spikes, schedule=lambda step: 1 / (1 + step))
    data = batches(1)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for x in data[:-1]:
            with steps.forward():
                loss = loss_of(model, x)
            steps.backward(loss)
        torch.cuda._sleep(SLEEP_CYCLES)
        with steps.forward():
            loss = loss_of(model, data[-1])
        steps.backward(loss)
        end = torch.cuda.Event()
        end.record()
        assert not end.query(), "the step was queued while the device was busy"
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert (steps.taken, steps.skipped) == (COUNT, 0)


def test_a_restart_from_a_checkpoint_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole, parts = ended(tmp_path / "whole", (20,)), ended(tmp_path / "parts", (7, 13, 20))
    assert all(torch.equal(*pair) for pair in zip(whole, parts, strict=True))


def ended(folder: Path, attempts: tuple[int, ...]) -> list[torch.Tensor]:
    """Weights and averages after the last attempt; each ends at a step, and the next goes on from its checkpoint."""
    found: list[torch.Tensor] = []
    for attempt, end in enumerate(attempts):
        model, optimizer = made()
        ema = Ema(model, decay=0.9)
        steps = Steps(model, optimizer, precision="fp16", clip=CLIP)
        state = {"model": model, "optimizer": optimizer, "steps": steps, "ema": ema}
        with Checkpointer(EACH_STEP, alone(folder, attempt)) as checkpointer:
            assert checkpointer.restore(state) == steps.count
            for x in batches(1)[steps.count : end]:
                with steps.forward():
                    loss = loss_of(model, x)
                steps.backward(loss)
                ema.update()
                checkpointer.save(steps.count, state)
            found = [each.detach().clone() for each in (*model.parameters(), *ema.state_dict().values())]
            with torch.no_grad():  # what was saved is a copy
                for each in model.parameters():
                    each.zero_()
    return found


def test_a_compiled_model_trains() -> None:
    model, optimizer = made()
    compiled(model, mode="default")
    steps = trained(model, optimizer, precision="bf16")
    plain, plain_optimizer = made()
    trained(plain, plain_optimizer, precision="bf16")
    assert steps.taken == COUNT
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-2)


@pytest.mark.parametrize("wrap", [DistributedDataParallel, fully_shard])
def test_a_wrapped_model_on_nccl_gives_the_same_weights(wrap: Any, tmp_path: Path) -> None:
    plain, plain_optimizer = made()
    trained(plain, plain_optimizer, precision="bf16", bad=(3,))
    torch.distributed.init_process_group("nccl", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        torch.cuda.set_device(0)
        wrapped = wrap(made()[0])
        optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-3, fused=True)
        steps = trained(wrapped, optimizer, precision="bf16", bad=(3,), check_replicas=5, spikes=20.0)
        found = [each.full_tensor() if hasattr(each, "full_tensor") else each for each in wrapped.parameters()]
    finally:
        torch.distributed.destroy_process_group()
    assert (steps.taken, steps.skipped) == (COUNT - 1, 1)
    for ours, theirs in zip(found, plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


DETERMINISTIC = """
import hashlib
import torch
from torch import nn
from slurmopt.training import Steps, deterministic

deterministic(7)
model = nn.Sequential(nn.Embedding(50, 64), nn.Dropout(0.5), nn.Linear(64, 8)).cuda()
steps = Steps(model, torch.optim.AdamW(model.parameters(), fused=True), precision="bf16")
for _ in range(20):
    steps.run(lambda x: model(x).square().mean(), torch.randint(0, 50, (4096,), device="cuda"))
bits = torch.cat([each.detach().reshape(-1) for each in model.parameters()]).cpu().numpy().tobytes()
print(hashlib.sha256(bits).hexdigest())
"""


def test_a_deterministic_training_ends_with_the_same_bits() -> None:
    words = [sys.executable, "-c", DETERMINISTIC]
    ends = {subprocess.run(words, capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert len(ends) == 1
