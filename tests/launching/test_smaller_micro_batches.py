"""A run whose rank runs out of memory where the others wait for it: it comes back with smaller micro-batches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from json_answer import data_of
from local_sweep import end_what_is_left, slurmopt

TRAIN = """
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from slurmopt import current_run, progress
from slurmopt.checkpoint import Checkpointer
from slurmopt.training import ResumableSampler, Steps


class Hungry(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if len(gradient) > 4 and torch.distributed.get_rank() == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB (simulated)")
        return gradient


def main(config):
    data = TensorDataset(torch.randn(64, 8))
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    steps = Steps(model, torch.optim.SGD(model.parameters(), lr=0.01), out_of_memory="split")
    sampler = ResumableSampler(len(data), batch_size=8, global_batch=16, seed=1)
    state = {"model": model, "steps": steps, "sampler": sampler}
    sizes = []

    def loss_of(batch):
        sizes.append(len(batch[0]))
        return Hungry.apply(model(batch[0])).square().mean()

    with Checkpointer(config.checkpoint, current_run()) as checkpointer:
        checkpointer.restore(state)
        for micro in sampler.accumulate(DataLoader(data, batch_sampler=sampler)):
            if steps.run(loss_of, micro):
                progress(steps.count, 4)
                checkpointer.save(steps.count, state)
    return {"steps": steps.count, "largest": max(sizes), "attempt": current_run().attempt}
"""


@pytest.mark.slow
def test_the_next_attempt_begins_with_smaller_micro_batches_and_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    words = ("task._target_=train.main", "resources.tasks_per_node=2", "monitor.sampler=false", "--local", "--wait")
    done = slurmopt("launch", *words)
    end_what_is_left(tmp_path)
    assert done.returncode == 0, done.stderr
    (status,) = data_of(slurmopt("status", "--json").stdout)
    run = Path(status["folder"])
    result = json.loads((run / "result.json").read_text())["result"]
    assert result == {"steps": 4, "largest": 4, "attempt": 1}
    assert json.loads((run / "micro-batches.json").read_text()) == {"parts": 2}
    log = (run / "logs/attempt-1/rank-0.log").read_text()
    assert "each micro-batch is split into 2 parts, as an earlier attempt ran out of memory" in log
