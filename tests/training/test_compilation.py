"""torch.compile and activation checkpointing by the names of modules."""

from __future__ import annotations

import copy

import pytest
import torch

from slurmopt.errors import JobError
from slurmopt.training import checkpoint_activations, compiled


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout = torch.nn.Linear(8, 8), torch.nn.Dropout(0.5)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.dropout(self.linear(x).relu())


class Plain(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


class Net(torch.nn.Module):
    def __init__(self, kind: type[Block] = Block) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([kind() for _ in range(4)])
        self.head = torch.nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net()


def gradients(model: Net) -> list[torch.Tensor]:
    torch.manual_seed(1)
    model(torch.ones(3, 8)).sum().backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize(("every", "recomputed"), [(1, [2, 2, 2, 2]), (2, [2, 1, 2, 1])])
def test_activations_are_computed_again_and_gradients_stay(net: Net, every: int, recomputed: list[int]) -> None:
    wanted = gradients(copy.deepcopy(net))
    names = list(net.state_dict())
    assert checkpoint_activations(net, modules=["Block"], every=every) is net
    assert all(map(torch.equal, gradients(net), wanted))
    assert [block.calls for block in net.blocks] == recomputed
    assert list(net.state_dict()) == names


def test_a_copy_of_the_model_computes_with_its_own_weights(net: Net) -> None:
    twin = copy.deepcopy(checkpoint_activations(net, modules=["Block"]))
    with torch.no_grad():
        twin.blocks[0].linear.bias += 1
    assert not torch.equal(twin.eval()(torch.ones(1, 8)), net.eval()(torch.ones(1, 8)))


def test_only_what_is_named_is_compiled_and_the_names_of_the_state_stay() -> None:
    net = Net(Plain)
    seen: list[int] = []

    def backend(graph, inputs):  # type: ignore[no-untyped-def]
        seen.append(len(graph.graph.nodes))
        return graph.forward

    x = torch.ones(3, 8, requires_grad=True)
    wanted, names = net(x), list(net.state_dict())
    compiled(net, modules=["Plain"], backend=backend)
    assert torch.allclose(net(x), wanted)
    assert len(seen) == 1  # for four that are alike, and not for the head
    assert list(net.state_dict()) == names


def test_what_is_switched_off_changes_nothing(net: Net) -> None:
    wanted = gradients(copy.deepcopy(net))
    compiled(checkpoint_activations(net, modules=["None"], enabled=False), enabled=False, backend="missing")
    assert all(map(torch.equal, gradients(net), wanted))
    assert [block.calls for block in net.blocks] == [1, 1, 1, 1]


def test_bad_input(net: Net) -> None:
    with pytest.raises(JobError, match=r"compiled: the model has no Blok; its classes are Block, Dropout, Linear"):
        compiled(net, modules=["Block", "Blok"])
    with pytest.raises(JobError, match="checkpoint_activations: the model has no modules"):
        checkpoint_activations(net, modules=[])
    with pytest.raises(JobError, match="every is 0; valid: a number from 1 on"):
        checkpoint_activations(net, modules=["Block"], every=0)
    with pytest.raises(JobError, match="a Block has it already; call it once"):
        checkpoint_activations(checkpoint_activations(net, modules=["Block"]), modules=["Block"])
