"""Optimizers of which each rank has a part that looks like the whole: refused before the first step, unless the entry
has `per_rank = True`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint.ranks import on_ranks
from torch import nn

from slurmopt.checkpoint import Checkpointer
from slurmopt.job.worker.current_run import CurrentRun

EACH_STEP = {"shared": {"every": 1, "keep": 9}}


def _net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))


def _zero() -> tuple[nn.Module, Any]:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(_net())
    return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.1)


def _fsdp1(use_orig_params: bool = False) -> tuple[nn.Module, Any]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(_net(), device_id=torch.device("cpu"), use_orig_params=use_orig_params)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def _fsdp1_orig() -> tuple[nn.Module, Any]:
    return _fsdp1(use_orig_params=True)


def _train(run: CurrentRun, make: Callable[[], tuple[nn.Module, Any]], restores: bool) -> None:
    model, optimizer = make()
    with Checkpointer(EACH_STEP, run) as saving:
        if restores:
            saving.restore({"model": model, "optimizer": optimizer})
        model(torch.ones(8, 4)).square().mean().backward()
        optimizer.step()
        saving.save(1, {"model": model, "optimizer": optimizer})


@pytest.mark.parametrize("restores", [True, False])
@pytest.mark.parametrize("make", [_zero, _fsdp1, _fsdp1_orig])
def test_a_part_that_looks_like_the_whole_is_refused(folder: Path, make: Callable[[], Any], restores: bool) -> None:
    for outcome in on_ranks(_train, folder, make, restores, nodes=["here"] * 2):
        assert "CheckpointError: state['optimizer']: " in outcome.last_line, outcome.error
        assert ("ZeroRedundancyOptimizer" if make is _zero else "FSDP1") in outcome.last_line
        assert "fully_shard" in outcome.last_line


def _zero_by_parts() -> tuple[nn.Module, Any]:
    """torch's own state_dict wants the parts of all ranks on one; this one is the rank's own part."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    class ByParts(ZeroRedundancyOptimizer):
        def state_dict(self) -> dict[str, Any]:
            return self.optim.state_dict()

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.optim.load_state_dict(state_dict)

    model = nn.parallel.DistributedDataParallel(_net())
    return model, ByParts(model.parameters(), torch.optim.AdamW, lr=0.1)


def _save_own_parts(run: CurrentRun, make: Callable[[], tuple[nn.Module, Any]]) -> list[Any]:
    model, optimizer = make()
    optimizer.per_rank = True
    with Checkpointer(EACH_STEP, run) as saving:
        model(torch.ones(8, 4)).square().mean().backward()
        optimizer.step()
        assert saving.save(1, {"model": model, "optimizer": optimizer}, force=True)
        assert saving.wait()
    return _moments(optimizer)


def _restore_own_parts(run: CurrentRun, make: Callable[[], tuple[nn.Module, Any]]) -> list[Any]:
    model, optimizer = make()
    optimizer.per_rank = True
    with Checkpointer(EACH_STEP, run) as saving:
        assert saving.restore({"model": model, "optimizer": optimizer}) == 1
    return _moments(optimizer)


def _moments(optimizer: Any) -> list[Any]:
    return [each["exp_avg"].tolist() for each in optimizer.state_dict()["state"].values()]


@pytest.mark.parametrize("make", [_zero_by_parts, _fsdp1, _fsdp1_orig])
def test_each_rank_gets_its_own_part_back_where_the_entry_asks_for_it(folder: Path, make: Callable[[], Any]) -> None:
    saved = on_ranks(_save_own_parts, folder, make, nodes=["here"] * 2)
    assert [outcome.error for outcome in saved] == [None, None]
    restored = on_ranks(_restore_own_parts, folder, make, nodes=["here"] * 2, attempt=1)
    assert [outcome.error for outcome in restored] == [None, None]
    assert [outcome.value for outcome in restored] == [outcome.value for outcome in saved]
    assert saved[0].value != saved[1].value


def test_one_rank_has_the_whole(folder: Path) -> None:
    (outcome,) = on_ranks(_fsdp1_alone, folder, nodes=["here"])
    assert outcome.error is None, outcome.error


def _fsdp1_alone(run: CurrentRun) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    _train(run, _fsdp1, True)
