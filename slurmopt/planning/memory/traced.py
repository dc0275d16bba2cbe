"""Activations of a model that was traced under fake tensors: of two depths the difference is a layer."""

from __future__ import annotations

from dataclasses import dataclass

from slurmopt.planning.layout import FULL, Layout, Work
from slurmopt.planning.memory.activations import Activations, inputs_of_layers
from slurmopt.planning.models.transformer import Transformer
from slurmopt.planning.ranges import Range


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

    def activations(self, model: Transformer, work: Work, layout: Layout) -> Activations:
        """Tier 2. The trace runs on CPU kernels that are written operation by operation: the upper end."""
        layer = Range(self.layer - self.norms, self.layer)
        if layout.recompute == FULL:
            stage = self.layers * inputs_of_layers(model, work, layout) + layer
        else:
            stage = self.layers * layer
        return Activations(layer=layer, stage=stage, head=Range(self.outside + self.loss, self.outside + self.loss))


def trace_of(layers: int | None, depths: list[dict[str, float]]) -> Trace:
    """`depths`: one that was built whole, or two; of each its parameters, activations, loss and norms."""
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
        )
    apart = last["layers"] - first["layers"]

    def of_a_layer(name: str) -> float:
        return (last[name] - first[name]) / apart

    each = of_a_layer("activations")
    return Trace(
        layers=layers,
        layer_parameters=int(of_a_layer("parameters")),
        outside_parameters=int(first["parameters"] - first["layers"] * of_a_layer("parameters")),
        layer=each,
        outside=first["activations"] - first["layers"] * each,
        loss=first["loss"],
        norms=of_a_layer("norms"),
    )


def as_transformer(trace: Trace, name: str) -> Transformer:
    """A model of which nothing is known but parameters: no width, so that nothing of it can be split or recomputed."""
    return Transformer(
        name=name, layers=trace.layers, hidden=0, heads=1, kv_heads=1, head_size=0, ffn=0, vocab=0, gated=False,
        tied=True, rms_norm=True, attention=trace.layer_parameters, mlp=0, norms=0, rest=trace.outside_parameters,
    )  # fmt: skip
