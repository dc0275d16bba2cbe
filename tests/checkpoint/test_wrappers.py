"""What a model is wrapped in may change from one attempt to the next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint.ranks import alone, on_ranks
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.parallel import DistributedDataParallel

from slurmopt.checkpoint import Checkpointer
from slurmopt.checkpoint.wrappers import renamed_keys
from slurmopt.errors import CheckpointError
from slurmopt.job.worker.current_run import CurrentRun

EACH_STEP = {"shared": {"every": 1, "keep": 9}}


class Net(nn.Module):
    """One of its parts has the name that DDP uses."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.module(x))
        for layer in self.layers:
            x = layer(x)
        return x


def _layers(net: Net, wrap: Callable[[nn.Module], nn.Module]) -> Net:
    net.layers = nn.ModuleList([wrap(layer) for layer in net.layers])
    return net


WRAPPED: dict[str, Callable[[Net], nn.Module]] = {
    "plain": lambda net: net,
    "compiled": torch.compile,
    "compiled layers": lambda net: _layers(net, torch.compile),
    "activation checkpoints": lambda net: _layers(net, checkpoint_wrapper),
    "compiled over activation checkpoints": lambda net: torch.compile(_layers(net, checkpoint_wrapper)),
    "activation checkpoints over compiled": lambda net: _layers(
        net, lambda each: checkpoint_wrapper(torch.compile(each))
    ),
    "data parallel": nn.DataParallel,
    "compiled over data parallel": lambda net: torch.compile(nn.DataParallel(net)),
}


def _net(seed: int) -> Net:
    torch.manual_seed(seed)
    net = Net()
    net.norm.running_mean.normal_()
    return net


def _parts(net: Net) -> dict[str, torch.Tensor]:
    inner = [each for each in net.layers.modules() if isinstance(each, nn.Linear)]
    weights = {f"layer {at}": each.weight for at, each in enumerate(inner)}
    return {**weights, "module": net.module.bias, "norm": net.norm.running_mean}


class Older:
    """A model as versions before saved it: with the names of what it was wrapped in."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def state_dict(self) -> dict[str, Any]:
        return OrderedDict(self.model.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@pytest.mark.parametrize("of", [lambda model: model, Older], ids=["", "older"])
@pytest.mark.parametrize("before", ["plain", "compiled layers", "compiled over data parallel"])
def test_wrappers_change_between_attempts(folder: Path, before: str, of: Callable[[nn.Module], Any]) -> None:
    saved = _net(1)
    with Checkpointer(EACH_STEP, alone(folder, 0)) as saving:
        assert saving.save(1, {"model": of(WRAPPED[before](saved))})
        assert saving.wait()
    with Checkpointer(EACH_STEP, alone(folder, 1)) as saving:
        for after, wrap in WRAPPED.items():
            here = _net(2)
            assert saving.restore({"model": wrap(here)}) == 1
            for name, tensor in _parts(here).items():
                assert torch.equal(tensor, _parts(saved)[name]), (after, name)


@pytest.mark.parametrize(
    "saved", ["_orig_mod.x module.x", "module._orig_mod.x _orig_mod.module.x", "m.module.x module.m.x"]
)
def test_two_saved_keys_that_mean_the_same_are_kept_apart(saved: str) -> None:
    keys = saved.split()
    assert set(renamed_keys(keys, ["x", "m.x"]).values()) == set(keys)


def test_two_parts_that_would_be_restored_into_one_are_refused(folder: Path) -> None:
    with Checkpointer(EACH_STEP, alone(folder, 0)) as saving:
        older = {"module.weight": torch.zeros(1, 2), "_orig_mod.weight": torch.ones(1, 2), "bias": torch.zeros(1)}
        assert saving.save(1, {"model": older})
        assert saving.wait()
    with (
        Checkpointer(EACH_STEP, alone(folder, 1)) as saving,
        pytest.raises(CheckpointError, match=r"model\.weight is in the model and not in step-00000001/"),
    ):
        saving.restore({"model": nn.Linear(2, 1)})


class Parts(nn.Module):
    """Of its keys one without its wrapper would have the name that another has with it."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.a = nn.DataParallel(nn.ModuleDict({"module": nn.Linear(2, 2), "b": nn.Linear(2, 2)}))
        self.a.register_module("b", nn.Linear(2, 2))


def test_a_model_whose_keys_meet_without_wrappers_is_restored_whole(folder: Path) -> None:
    saved, here = Parts(1), Parts(2)
    with Checkpointer(EACH_STEP, alone(folder, 0)) as saving:
        assert saving.save(1, {"model": saved})
        assert saving.wait()
    with Checkpointer(EACH_STEP, alone(folder, 1)) as saving:
        assert saving.restore({"model": here}) == 1
    for key, tensor in saved.state_dict().items():
        assert torch.equal(here.state_dict()[key], tensor), key


def test_a_model_with_other_parts_is_refused_by_their_plain_names(folder: Path) -> None:
    with Checkpointer(EACH_STEP, alone(folder, 0)) as saving:
        assert saving.save(1, {"model": torch.compile(_net(1))})
        assert saving.wait()
    here = _net(2)
    here.head = nn.Linear(4, 1)
    with (
        Checkpointer(EACH_STEP, alone(folder, 1)) as saving,
        pytest.raises(CheckpointError, match=r"model\.head\.\w+ is in the model and not in step-00000001/"),
    ):
        saving.restore({"model": here})


def _means(run: CurrentRun, compiled: bool) -> tuple[list[float], list[float]]:
    """Under DDP, a batch norm's statistics of each rank: rank 0's are saved."""
    net = _net(run.rank.rank)
    model: Any = DistributedDataParallel(net)
    model = torch.compile(model) if compiled else model
    net.norm.running_mean.fill_(run.rank.rank)
    with Checkpointer(EACH_STEP, run) as saving:
        step = saving.restore({"model": model})
        if not step:
            assert saving.save(1, {"model": model})
            assert saving.wait()
    return net.norm.running_mean.tolist(), net.module.bias.tolist()


def test_ddp_goes_in_and_out_of_torch_compile(folder: Path) -> None:
    first = on_ranks(_means, folder, True, nodes=["here"] * 2)
    second = on_ranks(_means, folder, False, nodes=["here"] * 2, attempt=1)
    for outcome in first + second:
        assert outcome.error is None, outcome.error + outcome.log
    assert second[0].value == second[1].value == first[0].value
