"""Splits what a traced step holds by module: the modules outside of layers, the layers together, and the rest.

Layers are the members of the list (nn.ModuleList or nn.Sequential of one type) that has most parameters. The modules on
the way to it are split into those below them; all others are shown whole. What a module keeps is what torch's tracker
has of activations after its forward more than before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

REST = "the rest"
_EACH = "*"
_MOST = 40
"""Modules that are told apart; the smallest others are in the rest."""


@dataclass
class Module:
    """A module, or the layers together; bytes of one micro-batch."""

    name: str
    count: int
    """1, or of layers how many there are."""
    parameters: int
    weights: float
    """Weights that an earlier module has too count there."""
    gradients: float
    activations: float
    norms: float
    """Of activations, what norms keep on a CPU alone."""


def modules(model: nn.Module, memory: Any, kept: float, norms: Callable[[nn.Module], float]) -> list[Module]:
    """Their sums are those of the whole model. `memory`: the tracker, after the step; `kept`: activations at the end of
    forward. Call it before gradients are gone."""
    layers = _layers(model)
    members = [] if layers is None else [f"{layers[0]}.{name}" for name, _ in layers[1].named_children()]
    seen: set[int] = set()
    found: dict[str, Module] = {}
    if not hasattr(memory, "memory_tracking"):  # another version of torch: without the split, all the rest stands
        return []
    for name, module in _shown(model, "", members):
        label = f"{layers[0]}.{_EACH}" if layers is not None and name in members else name
        one = _module(label, module, memory, norms, seen)
        found[label] = one if label not in found else _sum(found[label], one)
    shown = _largest([each for each in found.values() if each.weights or each.activations])
    rest = Module(REST, 1, 0, 0.0, 0.0, kept, norms(model))
    for parameter in model.parameters():
        rest.parameters, rest.weights = rest.parameters + parameter.numel(), rest.weights + parameter.nbytes
        rest.gradients += _gradient(parameter)
    for each in shown:
        _take(rest, each)
    return [*shown, rest]


def _layers(model: nn.Module) -> tuple[str, nn.Module] | None:
    """The list of layers, and its name."""
    lists = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList | nn.Sequential) and name
        and len(module) > 1 and len({type(each) for each in module}) == 1
    ]  # fmt: skip
    return max(lists, key=lambda one: sum(each.numel() for each in one[1].parameters()), default=None)


def _shown(module: nn.Module, name: str, members: list[str]) -> Iterator[tuple[str, nn.Module]]:
    """The modules that are told apart, in their order."""
    for child_name, child in module.named_children():
        full = f"{name}.{child_name}" if name else child_name
        if any(member.startswith(f"{full}.") for member in members):
            yield from _shown(child, full, members)
        else:
            yield full, child


def _module(name: str, module: nn.Module, memory: Any, norms: Callable[[nn.Module], float], seen: set[int]) -> Module:
    own = [each for each in module.parameters() if id(each) not in seen]
    seen.update(id(each) for each in own)
    return Module(
        name=name,
        count=1,
        parameters=sum(each.numel() for each in own),
        weights=float(sum(each.nbytes for each in own)),
        gradients=float(sum(map(_gradient, own))),
        activations=_kept(memory, module),
        norms=norms(module),
    )


def _gradient(parameter: nn.Parameter) -> float:
    return 0.0 if parameter.grad is None else float(parameter.grad.nbytes)


def _kept(memory: Any, module: nn.Module) -> float:
    """Over all calls of its forward; 0 where it was not called."""
    told = memory.memory_tracking.get(module)
    if told is None:
        return 0.0
    snapshots = {getattr(state, "name", ""): taken for state, taken in told.snapshots.items()}
    calls = zip(snapshots.get("PRE_FW", []), snapshots.get("POST_FW", []), strict=False)
    return sum(_activations(after) - _activations(before) for before, after in calls)


def _activations(snapshot: Any) -> float:
    return float(sum(
        count for kinds in snapshot.values() for kind, count in kinds.items() if getattr(kind, "name", "") == "ACT"
    ))  # fmt: skip


def _sum(first: Module, other: Module) -> Module:
    return Module(
        first.name, first.count + 1, first.parameters + other.parameters, first.weights + other.weights,
        first.gradients + other.gradients, first.activations + other.activations, first.norms + other.norms,
    )  # fmt: skip


def _take(rest: Module, one: Module) -> None:
    rest.parameters -= one.parameters
    rest.weights -= one.weights
    rest.gradients -= one.gradients
    rest.activations -= one.activations
    rest.norms -= one.norms


def _largest(found: list[Module]) -> list[Module]:
    """In their order."""
    least = sorted((each.weights + each.activations for each in found), reverse=True)[:_MOST]
    return [each for each in found if each.weights + each.activations >= least[-1]][:_MOST] if least else []
