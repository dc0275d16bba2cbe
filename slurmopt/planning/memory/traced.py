"""Activations of a model that was traced under fake tensors: of two depths the difference is a layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from slurmopt.planning.layout import FULL, Layout, Work
from slurmopt.planning.memory.activations import Activations, inputs_of_layers
from slurmopt.planning.models.transformer import Transformer
from slurmopt.planning.ranges import Range


@dataclass(frozen=True, kw_only=True)
class ModuleMemory:
    """A module, or one of several that are alike; bytes of one micro-batch, not sharded and without recomputation."""

    name: str
    count: int
    """How many of them there are."""
    parameters: int
    weights: float
    gradients: float
    activations: Range
    """What it leaves for backward, its output among it; below 0 for what is freed between modules."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One model; bytes of one micro-batch."""

    layers: int
    """Of the whole model; 1 where the layers are not told apart."""
    layer_parameters: int
    outside_parameters: int
    layer: float
    """What a layer keeps for backward."""
    outside: float
    """What is kept outside of layers, logits and their softmax for the most part."""
    loss: float
    """What the loss's backward has in addition."""
    norms: float
    """Of a layer, what its norms keep on a CPU alone."""
    modules: tuple[ModuleMemory, ...] = ()
    """In the order of the model, the layers as one, the rest at the end; empty where they could not be told apart."""

    def activations(self, model: Transformer, work: Work, layout: Layout) -> Activations:
        """Tier 2. The trace runs on CPU kernels that are written operation by operation: the upper end."""
        layer = Range(self.layer - self.norms, self.layer)
        if layout.recompute == FULL:
            stage = self.layers * inputs_of_layers(model, work, layout) + layer
        else:
            stage = self.layers * layer
        return Activations(layer=layer, stage=stage, head=Range(self.outside + self.loss, self.outside + self.loss))


def trace_of(layers: int | None, depths: list[dict[str, Any]]) -> Trace:
    """`depths`: one that was built whole, or two; of each its parameters, activations, loss, norms and modules."""
    first, last = depths[0], depths[-1]
    if layers is None:
        return Trace(
            layers=1,
            layer_parameters=int(first["parameters"]),
            outside_parameters=0,
            layer=first["activations"],
            outside=0.0,
            loss=first["loss"],
            norms=first["norms"],
            modules=_modules(None, first, first),
        )
    apart = last["layers"] - first["layers"]

    def of_a_layer(name: str) -> float:
        return float((last[name] - first[name]) / apart)

    each = of_a_layer("activations")
    outside, norms = first["activations"] - first["layers"] * each, of_a_layer("norms")
    return Trace(
        layers=layers,
        layer_parameters=int(of_a_layer("parameters")),
        outside_parameters=int(first["parameters"] - first["layers"] * of_a_layer("parameters")),
        layer=each,
        outside=outside,
        loss=first["loss"],
        norms=norms,
        modules=_with_layers(_modules(layers, first, last), Range(each - norms, each), outside),
    )


def _with_layers(modules: tuple[ModuleMemory, ...], layer: Range, outside: float) -> tuple[ModuleMemory, ...]:
    """A layer keeps what the whole model keeps more with it: what it leaves itself may be freed by the next one. The
    rest is what makes the sum that of the model."""
    if not any(one.count > 1 for one in modules):
        return modules
    found = [replace(one, activations=layer) if one.count > 1 else one for one in modules]
    high = outside - sum(one.activations.high for one in found[:-1] if one.count == 1)
    found[-1] = replace(found[-1], activations=Range(high, high))
    return tuple(found)


def _modules(layers: int | None, first: dict[str, Any], last: dict[str, Any]) -> tuple[ModuleMemory, ...]:
    """Those of the shallow model; the difference of both, where their number differs, is one of the layers."""
    ours, deeper = first.get("modules", []), {each["name"]: each for each in last.get("modules", [])}
    if [each["name"] for each in ours] != list(deeper):
        return ()
    return tuple(_module(layers, each, deeper[each["name"]]) for each in ours)


def _module(layers: int | None, one: dict[str, Any], deeper: dict[str, Any]) -> ModuleMemory:
    more = deeper["count"] - one["count"]

    def of_one(name: str) -> float:
        return float((deeper[name] - one[name]) / more if more else one[name] / one["count"])

    kept = of_one("activations")
    return ModuleMemory(
        name=one["name"],
        count=layers if more and layers is not None else one["count"],
        parameters=round(of_one("parameters")),
        weights=of_one("weights"),
        gradients=of_one("gradients"),
        activations=Range(kept - of_one("norms"), kept),
    )


def as_transformer(trace: Trace, name: str) -> Transformer:
    """A model of which nothing is known but parameters: no width, so that nothing of it can be split or recomputed."""
    return Transformer(
        name=name, layers=trace.layers, hidden=0, heads=1, kv_heads=1, head_size=0, ffn=0, vocab=0, gated=False,
        tied=True, rms_norm=True, attention=trace.layer_parameters, mlp=0, norms=0, rest=trace.outside_parameters,
    )  # fmt: skip
