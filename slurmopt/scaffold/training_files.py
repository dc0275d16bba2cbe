"""The training that `slurmopt init` writes: one with torch, one without. Each resumes from its last checkpoint."""

from __future__ import annotations

WITH_TORCH = '''\
"""A small training that resumes. Replace the model and the data by yours."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from slurmopt import current_run, progress, rank_facts
from slurmopt.checkpoint import Checkpointer, rng_state


def main(config):  # called in every rank, one for each GPU; the process group is ready
    device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
    torch.manual_seed(config.seed)
    model = DistributedDataParallel(nn.Linear(8, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    torch.manual_seed(config.seed + 1 + rank_facts().rank)  # each rank draws its own data
    state = {"model": model, "optimizer": optimizer, "rng": rng_state()}
    with Checkpointer(config.checkpoint, current_run()) as checkpointer:
        for step in range(checkpointer.restore(state), config.steps):  # from 0 at the first start
            x = torch.randn(32, 8).to(device)
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            progress(step + 1, config.steps, loss=loss)
            checkpointer.save(step + 1, state, force=step + 1 == config.steps)  # when due, and at the end
'''

WITHOUT_TORCH = '''\
"""A small training that resumes, without torch. Replace the loop by yours."""

import json
import os

from slurmopt import Requeue, current_run, progress, stop_requested


def main(config):  # called with the whole config
    file = current_run().folder.path / "state.json"  # the same folder in every attempt
    state = json.loads(file.read_text()) if file.exists() else {"step": 0, "weight": 0.0}
    while state["step"] < config.steps:
        error = state["weight"] - 3
        state = {"step": state["step"] + 1, "weight": state["weight"] - config.lr * 2 * error}
        progress(state["step"], config.steps, loss=error**2)
        stop = stop_requested()  # the time limit is near, or a preemption
        if stop or state["step"] % 100 == 0 or state["step"] == config.steps:
            save(file, state)
        if stop:
            raise Requeue(f"saved at step {state['step']}")
    return {"weight": state["weight"]}


def save(file, state):
    new = file.with_suffix(".new")
    new.write_text(json.dumps(state))
    os.replace(new, file)  # whole, or not there
'''
