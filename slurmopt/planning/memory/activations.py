"""What backward needs of forward: bytes of activations.

Letters as in the papers: s tokens of a sequence, b samples of a micro-batch, h the hidden size, a heads, f the width of
the MLP, V the vocabulary, t ranks of tensor parallelism, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass

from slurmopt.planning.layout import EAGER, FULL, PLAIN, SELECTIVE, Layout, Work
from slurmopt.planning.models.transformer import Transformer
from slurmopt.planning.ranges import Range
from slurmopt.planning.states import PRECISIONS


@dataclass(frozen=True, kw_only=True)
class Activations:
    """Bytes of one micro-batch on one rank."""

    layer: Range
    stage: Range
    """All layers of the rank, at the end of forward."""
    head: Range
    """What the loss has in addition, at the peak in its backward."""


def by_formulas(model: Transformer, work: Work, layout: Layout) -> Activations:
    """Tier 1."""
    return Activations(
        layer=of_layer(model, work, layout), stage=of_stage(model, work, layout), head=of_head(model, work, layout)
    )


_STATISTIC = 4
"""Bytes of each number that a norm and flash attention keep, in fp32."""
_IMBALANCE = 2.0
"""How many times its share of tokens an expert may have, at the upper end."""


def of_layer(model: Transformer, work: Work, layout: Layout) -> Range:
    """Bytes of one layer and one micro-batch on one rank; with and without fused norms and SwiGLU.

    A GPT-like layer with dropout is 34sbh + 5as²b in 16 bits (2205.05198, equation 1), with tensor parallelism
    10sbh + 24sbh/t + 5as²b/t (equation 2), with the sequence split too all of it over t (equation 4). A Llama-like one
    is 12sbh + 4sbh·g/a + 8sbf + 4sba + 8sb, with norms that are not fused 8sbh more. torch.autocast keeps the sums
    between layers in fp32, and a copy in 16 bits for each matrix product.
    """
    kind, tokens = PRECISIONS[work.precision], work.sequence * layout.micro_batch
    h, query, key_value = model.hidden, model.heads * model.head_size, model.kv_heads * model.head_size
    # Outside of what tensor parallelism splits: inputs of the norms, and those of the projections and of the MLP. With
    # torch.autocast each matrix product has a copy of its own; one matrix may hold queries, keys and values.
    apart = 2 if model.joint_qkv or not kind.casts else 3 + (2 if model.gated else 1)
    copies = Range(2, apart)
    norms = 2 * h * kind.residual + 2 * _STATISTIC * (1 if model.rms_norm else 2)
    whole = norms + (2 * h if work.dropout else 0) + h * kind.compute * copies
    # What norms keep that are written in Python: the normalised input, in fp32 or beside a copy in fp32.
    upcast = 2 * h * 4 if model.rms_norm else 0
    scores = _scores(model, work, layout.recompute)
    # Values that are part of one output keep it alive, beside what was rotated; the output of attention is copied.
    twice = Range(0, 2 * query + key_value if model.joint_qkv and not model.positions else 0)
    split = scores + kind.compute * (2 * query + 2 * key_value + twice + _mlp(model))
    t = layout.tensor  # the sequence is split where the rest is not
    low, high = (whole.low + split.low) / t, (whole.high + upcast + split.high) / t
    routed = 2 * kind.compute * h * model.active_experts * model.sparse_layers / model.layers
    return tokens * Range(low, high + routed / t)


def _mlp(model: Transformer) -> Range:
    """Elements that the MLP keeps of a token. SwiGLU keeps three of the width where it is fused, else four; GELU two,
    and five where it is written in Python. The tokens of an expert may be several times its share."""
    fused, apart = (3, 4) if model.gated else (2, 5 if model.python_gelu else 2)
    width = model.active_ffn
    return Range(fused * width, apart * width * (_IMBALANCE if model.experts else 1))


def _scores(model: Transformer, work: Work, recompute: str) -> float:
    """Bytes of attention's scores per token."""
    if work.attention != EAGER:
        return _STATISTIC * model.heads
    if recompute == SELECTIVE:
        return 0.0
    compute = PRECISIONS[work.precision].compute
    each = 2 * compute + 1 if work.dropout else compute
    return each * model.heads * work.sequence


def of_stage(model: Transformer, work: Work, layout: Layout) -> Range:
    """Bytes of all layers of a rank for one micro-batch, at the end of forward.

    With full recomputation each layer keeps its input alone, 2sbh, and one layer stands in memory whole.
    """
    layers, layer = model.layers / layout.pipeline, of_layer(model, work, layout)
    if layout.recompute != FULL:
        return layers * layer
    return layers * inputs_of_layers(model, work, layout) + layer


def inputs_of_layers(model: Transformer, work: Work, layout: Layout) -> float:
    """Bytes of what a layer gets, for one micro-batch on one rank."""
    each = PRECISIONS[work.precision].residual * work.sequence * layout.micro_batch * model.hidden
    return each / layout.tensor


def of_head(model: Transformer, work: Work, layout: Layout) -> Range:
    """Bytes of the logits and the loss at their peak, in the loss's backward: logits, log-softmax and two gradients.

    14sbV with logits in 16 bits and the loss in fp32, 8sbV with all of it in 16 bits. Nothing where the loss takes the
    logits in chunks.
    """
    if work.loss != PLAIN:
        return Range(0.0, 0.0)
    kind = PRECISIONS[work.precision]
    tokens = work.sequence * layout.micro_batch * model.vocab / layout.tensor
    return tokens * Range(4 * kind.compute, kind.compute + 3 * 4)
