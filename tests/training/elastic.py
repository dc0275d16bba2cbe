"""Trainings whose world changes: `python elastic.py FOLDER`; what comes of them lies in FOLDER.

The ranks are real, forked as those of the checkpoint tests. All numbers are float64, so that only another arithmetic
shows, and not the last bits of another order of the same sums.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # at its first step an optimizer imports it: here once, and not in each rank
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from slurmopt.checkpoint import Checkpointer, rng_state
from slurmopt.job.worker.current_run import CurrentRun
from slurmopt.run_folder import events
from slurmopt.training import ResumableSampler

sys.path.insert(0, str(Path(__file__).parents[1]))
from checkpoint.scenarios import OFF, digest, world

FORCED = {"shared": {"every": 1000}}  # beside those that are asked for
Wrap = Callable[[nn.Module], tuple[nn.Module, dict[str, int]]]
SAMPLES, GLOBAL_BATCH, STEPS = 103, 10, 24  # the last global batch of an epoch has 3 samples
UNDISTURBED = [(1, 10, STEPS)]
"""Ranks, batch size and the step after which an attempt ends: here one rank, one batch a step."""
CHANGING = [(2, 2, 5), (4, 1, 12), (2, 3, STEPS)]
STEADY, INTERRUPTED = [(2, 3, STEPS)], [(2, 3, 13), (2, 3, STEPS)]


def replicated(net: nn.Module) -> tuple[nn.Module, dict[str, int]]:
    """A DistributedDataParallel that counts how often gradients are exchanged."""
    model, count = DistributedDataParallel(net), {"exchanges": 0}

    def counted(group, bucket):  # type: ignore[no-untyped-def]  # torch refuses annotations that are text
        count["exchanges"] += 1
        return allreduce_hook(group, bucket)

    model.register_comm_hook(None, counted)
    return model, count


def sharded(net: nn.Module) -> tuple[nn.Module, dict[str, int]]:
    for layer in (net[0], net[2], net):  # type: ignore[index]
        fully_shard(layer)
    return net, {"exchanges": 0}


def train(run: CurrentRun, wrap: Wrap, batch_size: int, until: int, restarts: bool) -> None:
    torch.manual_seed(1)
    data = torch.randn(SAMPLES, 6, dtype=torch.float64)
    model, count = wrap(nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 1)).double())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sampler = ResumableSampler(SAMPLES, batch_size=batch_size, global_batch=GLOBAL_BATCH, seed=3)
    loader = DataLoader(TensorDataset(torch.arange(SAMPLES), data), batch_sampler=sampler)
    state = {"model": model, "optimizer": optimizer, "sampler": sampler, "rng": rng_state()}
    with Checkpointer(FORCED if restarts else OFF, run) as checkpointer:
        step, seen = checkpointer.restore(state), []
        while step < until:
            for micro in sampler.accumulate(loader, model):
                indices, x = micro.batch
                loss = (model(x) - x.prod(1, keepdim=True)).square().mean()
                (loss * micro.weight).backward()
                seen += indices.tolist() if micro.samples else []
                if not micro.last:
                    continue
                optimizer.step()
                optimizer.zero_grad()
                step += 1
                events.append(run.folder.path / f"{run.rank.rank}.jsonl", "step", step=step, seen=seen, **count)
                seen, count["exchanges"] = [], 0
                checkpointer.save(step, state, force=step == until)
                if step == until:
                    break
        checkpointer.wait()
    weights = {name: whole(value).tolist() for name, value in model.state_dict().items()}
    final = {
        "weights": {name.removeprefix("module."): value for name, value in weights.items()},
        "digest": digest(model),
        "steps_an_epoch": len(sampler),
    }
    (run.folder.path / f"final-{run.rank.rank}.json").write_text(json.dumps(final))


def whole(value: Any) -> torch.Tensor:
    tensor: torch.Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
    return tensor


def main(folder: Path) -> None:
    plans = {
        "undisturbed": (replicated, UNDISTURBED),
        "ddp": (replicated, [*CHANGING[:2], (2, 3, 15), (3, 2, STEPS)]),
        "fsdp": (sharded, CHANGING),
        "steady": (replicated, STEADY),
        "interrupted": (replicated, INTERRUPTED),
    }
    for name, (wrap, attempts) in plans.items():
        (folder / name).mkdir()
        for ranks, *plan in attempts:
            words = (wrap, *plan, len(attempts) > 1)
            well = world(ranks, folder / name, lambda run, words=words: train(run, *words))
            assert well, f"{name} on {ranks} ranks"


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
