"""Steps on the stages of a pipeline of torch: the norm of all stages clips each, and all skip a bad step together."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint.ranks import on_ranks
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from training.test_steps import net

from slurmopt.errors import JobError
from slurmopt.job.worker.current_run import CurrentRun
from slurmopt.training import Steps

COUNT, BAD, CLIP = 12, (4, 5), 0.05
"""The norm of nearly all steps is larger, and the parts of the stages differ."""


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(7)
    found = []
    for number in range(COUNT):
        x = torch.randn(12, 6, dtype=torch.float64, generator=generator)
        found.append((x, x.sum(1, keepdim=True) * (math.nan if number in BAD else 1)))
    return found


def on_a_stage(run: CurrentRun, fused: bool) -> tuple[list[float], int, int, list[float]]:
    rank, whole = run.rank.rank, net()
    module = whole[:2] if rank == 0 else whole[2:]
    stage = PipelineStage(module, rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=3, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2, fused=fused)
    steps = Steps(module, optimizer, clip=CLIP, stages=torch.distributed.group.WORLD)
    norms = []
    for x, target in batches():
        if rank == 0:
            schedule.step(x)
            steps.take()
        else:
            losses: list[torch.Tensor] = []
            schedule.step(target=target, losses=losses)
            steps.take(torch.stack(losses).mean())
        assert steps.norm is not None
        norms.append(steps.norm.item())
    return torch.cat([each.reshape(-1) for each in module.parameters()]).tolist(), steps.taken, steps.skipped, norms


def on_one_process(fused: bool) -> tuple[list[float], list[float]]:
    model = net()
    steps = Steps(model, torch.optim.AdamW(model.parameters(), lr=1e-2, fused=fused), clip=CLIP)
    norms = []
    for x, target in batches():
        steps.run(lambda batch: nn.functional.mse_loss(model(batch[0]), batch[1]), (x, target))
        assert steps.norm is not None
        norms.append(steps.norm.item())
    return torch.cat([each.reshape(-1) for each in model.parameters()]).tolist(), norms


@pytest.mark.parametrize("fused", [False, True])
def test_stages_end_as_one_process_does(fused: bool, tmp_path: Path) -> None:
    outcomes = on_ranks(on_a_stage, tmp_path / "run", fused, nodes=["a", "a"])
    assert [outcome.error for outcome in outcomes] == [None, None]
    weights: list[float] = []
    whole, norms = on_one_process(fused)
    for outcome in outcomes:
        of_stage, taken, skipped, of_all = outcome.value
        assert (taken, skipped) == (COUNT - len(BAD), len(BAD))
        assert of_all == pytest.approx(norms, abs=1e-9, nan_ok=True)
        weights += of_stage
    assert weights == pytest.approx(whole, abs=1e-9)
    assert min(norm for norm in norms if norm == norm) > CLIP
    assert "the loss is nan on rank 1" in outcomes[0].log


@pytest.mark.parametrize(
    ("options", "begun", "said"),
    [({"precision": "fp16"}, False, "take: fp16 scales the loss"), ({}, True, "take: a step is not finished")],
)
def test_a_step_that_cannot_be_taken_is_refused(options: dict[str, Any], begun: bool, said: str) -> None:
    model = nn.Linear(2, 1)
    steps = Steps(model, torch.optim.SGD(model.parameters(), lr=0.1), accumulate=2, **options)
    if begun:
        steps.backward(model(torch.ones(1, 2)).mean())
    with pytest.raises(JobError, match=said):
        steps.take()
