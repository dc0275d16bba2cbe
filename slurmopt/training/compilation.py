"""torch.compile and activation checkpointing for the modules of a model that a config names."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator

import torch
from torch.utils.checkpoint import checkpoint

from slurmopt.errors import JobError

_SHOWN = 12
"""Names of classes in an error."""


def compiled(
    model: torch.nn.Module,
    *,
    modules: Collection[str] = (),
    mode: str | None = None,
    dynamic: bool | None = None,
    fullgraph: bool = False,
    backend: str = "inductor",
    enabled: bool = True,
) -> torch.nn.Module:
    """Makes torch.compile compile `model` in place when it is first called, and returns it.

        model = compiled(model, **config.compile)

    In place, so that the names in its state_dict stay, and a checkpoint fits with and without compilation. `modules`:
    names of classes, such as a transformer's block: only these are compiled, each alone. Modules that are alike are
    compiled once, so that this takes a time that does not grow with the depth of the model. `mode`, `dynamic`,
    `fullgraph` and `backend` are those of torch.compile. `enabled`: False changes nothing. Call it after
    `checkpoint_activations`, and before DistributedDataParallel or `fully_shard`. Raises JobError if the model has no
    such modules.
    """
    if enabled:
        for module in _named(model, modules, "compiled") if modules else [model]:
            module.compile(mode=mode, dynamic=dynamic, fullgraph=fullgraph, backend=backend)
    return model


def checkpoint_activations(
    model: torch.nn.Module, *, modules: Collection[str], every: int = 1, enabled: bool = True
) -> torch.nn.Module:
    """Makes modules of `model` keep no activations for the backward pass, which computes them again; returns it.

        model = checkpoint_activations(model, **config.activation_checkpointing)

    `modules`: names of classes, such as a transformer's block. `every`: only each so many of them, the first included.
    `enabled`: False changes nothing. What is computed is the same, dropout included. Raises JobError if the model has
    no such modules, or has this already.
    """
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise JobError(f"every is {every!r}; valid: a number from 1 on")
    if enabled:
        for module in _named(model, modules, "checkpoint_activations")[::every]:
            if isinstance(module.forward, functools.partial):
                raise JobError(f"checkpoint_activations: a {type(module).__name__} has it already; call it once")
            # A partial of a bound method, and no closure: a copy of the module, such as an EMA, calls its own forward.
            module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)
    return model


def _named(model: torch.nn.Module, names: Collection[str], what: str) -> list[torch.nn.Module]:
    """The outermost modules whose class has one of the names."""
    names = [names] if isinstance(names, str) else list(names)
    found = list(_outermost(model, names))
    there = {type(module).__name__ for module in model.modules()}
    missing = [name for name in names if name not in there]
    if missing or not found:
        shown = sorted(there)[:_SHOWN]
        more = f" and {len(there) - len(shown)} more" if len(there) > len(shown) else ""
        raise JobError(
            f"{what}: the model has no {', '.join(missing) or 'modules'}; its classes are {', '.join(shown)}{more}"
        )
    return found


def _outermost(module: torch.nn.Module, names: list[str]) -> Iterator[torch.nn.Module]:
    for child in module.children():
        if type(child).__name__ in names:
            yield child
        else:
            yield from _outermost(child, names)
