"""Two steps of a model under fake tensors: what they would hold in memory, without any of it.

`python -m slurmopt.training.fake_step` reads a request from standard input and prints the answer, both as JSON:

    build       MODULE:FUNCTION that returns the model; it takes token ids and returns logits, or an object with them.
                A parameter `layers` is its depth: then it is built twice, and the difference is a layer
    config      or the content of a config.json of transformers
    sequence batch precision optimizer

    layers      of the whole model; null where it was built once
    depths      for each depth that was built: layers, parameters, and bytes of weights, gradients, optimizer,
                activations (at the end of forward), loss (what the loss's backward has in addition), norms (of
                activations: what norms keep on a CPU alone), modules: `slurmopt.training.modules_of_step`
    error       why it could not be traced, in one line; then there is nothing else

torch.distributed._tools is private: `tracker` is the one place that imports it, `modules_of_step` reads what it keeps.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from slurmopt.errors import InputError, one_line
from slurmopt.training.modules_of_step import Module, modules

_ATTENTION = "slurmopt_causal"
_DEPTHS = (2, 3)
_LONGEST = 300
_MOST_LAYERS = 10_000
_OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
}


@dataclass(frozen=True)
class Depth:
    """A depth that was built; bytes."""

    layers: int | None
    parameters: int
    weights: float
    gradients: float
    optimizer: float
    activations: float
    loss: float
    norms: float
    modules: list[Module]


def tracker() -> Any:
    """torch's tracker of memory. Raises InputError where this version of torch has another one."""
    try:
        from torch.distributed._tools.mem_tracker import MemTracker
    except ImportError as error:
        raise InputError(f"torch {torch.__version__} has no tracker of memory: {one_line(str(error))}") from error
    return MemTracker()


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request; any failure of the model is its reason."""
    try:
        build, layers = _builder(request)
        depths = [traced(build, depth, request) for depth in ((None,) if layers is None else _DEPTHS)]
    except Exception as error:  # noqa: BLE001 - the model is foreign code: whatever it raises is the reason
        return {"error": one_line(f"{type(error).__name__}: {error}")[:_LONGEST]}
    if layers is not None and depths[0].parameters == depths[-1].parameters:
        return {"error": "it has as many parameters with two layers as with three; valid: to build as many as `layers`"}
    return {"layers": layers, "depths": [asdict(depth) for depth in depths]}


def traced(build: Callable[[int | None], nn.Module], layers: int | None, request: Mapping[str, Any]) -> Depth:
    """Two steps of the model of that depth: the optimizer has its states in the second one only."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    precision = str(request["precision"])
    with FakeTensorMode(), torch.device("cpu"), _default(precision):
        model = build(layers)
        if not isinstance(model, nn.Module):
            raise InputError(f"it returned {type(model).__name__}; valid: a torch.nn.Module")
        optimizer = _OPTIMIZERS[str(request["optimizer"])](model.parameters())
        ids = torch.zeros(int(request["batch"]), int(request["sequence"]), dtype=torch.long)
        return _steps(model, optimizer, ids, precision, layers)


def _steps(model: nn.Module, optimizer: torch.optim.Optimizer, ids: Any, precision: str, layers: int | None) -> Depth:
    _forward(model, ids, precision)[1].backward()
    optimizer.step()
    optimizer.zero_grad()
    memory, peaks = tracker(), []
    memory.track_external(model, optimizer, ids)
    with memory:
        logits, loss = _forward(model, ids, precision)
        # Called once the loss's backward has come to the logits: later peaks are of layers and of the update.
        logits.register_hook(lambda _: peaks.append(_by_kind(memory, "peak")["Total"]))
        del logits
        forward = _by_kind(memory, "current")
        loss.backward()
        del loss
        backward = _by_kind(memory, "current")
    norms = _of_norms(ids)
    return Depth(
        layers=layers,
        parameters=sum(each.numel() for each in model.parameters()),
        weights=forward["PARAM"],
        gradients=backward["GRAD"],
        optimizer=forward["OPT"],
        activations=forward["ACT"],
        loss=max(0.0, peaks[0] - forward["Total"]),
        norms=norms(model),
        modules=modules(model, memory, forward["ACT"], norms),
    )


def _forward(model: nn.Module, ids: Any, precision: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and loss."""
    with _autocast(precision):
        logits = logits_of(model(ids))
        return logits, loss_of(logits, ids)


def logits_of(output: Any) -> torch.Tensor:
    """Those of what a model returns. Raises InputError where there are none."""
    logits = output if isinstance(output, torch.Tensor) else getattr(output, "logits", None)
    if not isinstance(logits, torch.Tensor):
        name = type(output).__name__
        raise InputError(f"the model returned {name}; valid: a tensor of logits, or an object with them")
    return logits


def loss_of(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """The loss of the next token, in fp32 as most trainings have it."""
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())


def _by_kind(memory: Any, which: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for kinds in memory.get_tracker_snapshot(which).values():
        for kind, count in kinds.items():
            name = getattr(kind, "name", str(kind))
            found[name] = found.get(name, 0.0) + float(count)
    return found


def _of_norms(ids: torch.Tensor) -> Callable[[nn.Module], float]:
    """Bytes that nn.RMSNorm keeps on a CPU, where it is several operations, and not on a GPU, where it is one kernel:
    eight of each element instead of two. Of a module with those below it."""

    def norms(module: nn.Module) -> float:
        sizes = [each.normalized_shape[-1] for each in module.modules() if isinstance(each, nn.RMSNorm)]
        return 6.0 * ids.numel() * sum(sizes)

    return norms


@contextlib.contextmanager
def _default(precision: str) -> Iterator[None]:
    """Weights of that precision: module.to(dtype) fails under fake tensors."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32 if precision in ("fp32", "autocast") else torch.bfloat16)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _autocast(precision: str) -> contextlib.AbstractContextManager[Any]:
    return torch.autocast("cpu", torch.bfloat16) if precision == "autocast" else contextlib.nullcontext()


def _builder(request: Mapping[str, Any]) -> tuple[Callable[[int | None], nn.Module], int | None]:
    """What builds the model of a depth, and the depth of the whole model."""
    if request.get("config") is not None:
        return of_transformers(dict(request["config"]))
    module, _, name = str(request["build"]).partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    function = getattr(importlib.import_module(module), name)
    parameter = inspect.signature(function).parameters.get("layers")
    if parameter is None:
        return (lambda _: function()), None
    if not isinstance(parameter.default, int) or not 1 <= parameter.default <= _MOST_LAYERS:
        raise InputError(f"{name}: the default of its parameter layers is no number of layers; valid: 1 to 10000")
    return (lambda layers: function(layers=layers)), parameter.default


def of_transformers(config: dict[str, Any]) -> tuple[Callable[[int | None], nn.Module], int]:
    """The model of a config.json, with the attention of GPUs: no matrix of scores, no mask, no copies of keys."""
    from transformers import AttentionInterface, AttentionMaskInterface, AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    AttentionInterface.register(_ATTENTION, _attention)
    AttentionMaskInterface.register(_ATTENTION, lambda *_, **__: None)
    kind = config.pop("model_type")
    whole = AutoConfig.for_model(kind, **config)

    def build(layers: int | None) -> nn.Module:
        made = AutoConfig.for_model(kind, **config)
        made.num_hidden_layers = layers
        if getattr(made, "layer_types", None):
            made.layer_types = made.layer_types[:layers]
        made.use_cache, made._attn_implementation = False, _ATTENTION
        model: nn.Module = AutoModelForCausalLM.from_config(made).train()
        return model

    return build, int(whole.num_hidden_layers)


def _attention(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: object, **options: Any
) -> tuple[torch.Tensor, None]:
    found = nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=options.get("scaling"), enable_gqa=query.shape[1] != key.shape[1]
    )
    return found.transpose(1, 2).contiguous(), None


if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin))))
