"""The time of a rank's arithmetic: matrix products at the part of the peak that they reach, and traffic of memory."""

from __future__ import annotations

from slurmopt.planning.hardware import Gpu
from slurmopt.planning.layout import EAGER, FULL, Layout, Work
from slurmopt.planning.memory import activations
from slurmopt.planning.models.transformer import Transformer
from slurmopt.planning.ranges import Range
from slurmopt.planning.states import FP32, states

_OF_REACHED = 0.65
"""At the slow end, the part of the best rate that a training's matrix products have: their shapes are smaller, and the
GPU's clock is lower under load."""
_READS = Range(3, 9)
"""How often an activation's byte moves: written, and read in forward and backward; more without fused kernels."""
_BANDWIDTH = 0.85
"""The part of the memory's bandwidth that kernels reach (0.80 to 0.92)."""


def flops_per_token(model: Transformer, sequence: int) -> float:
    """FLOPs of the model per token, forward and backward: 6 for each parameter by which a token is multiplied, and
    6·L·q·s for attention with a causal mask, q the width of all heads. What is recomputed does not count: that is MFU.
    """
    return 6 * model.matrix_parameters + 6 * model.layers * model.heads * model.head_size * sequence


def layer_seconds(model: Transformer, work: Work, layout: Layout, gpu: Gpu) -> Range:
    """Seconds of one layer and one micro-batch on one rank, forward and backward, without communication."""
    tokens, t = work.sequence * layout.micro_batch, layout.tensor
    width = model.heads * model.head_size
    share = model.sparse_layers / model.layers
    weights = model.attention + (1 - share) * model.mlp + share * (model.router + model.active_experts * model.expert)
    causal = 1.0 if work.attention == EAGER else 0.5
    forward = tokens * (2 * weights + causal * 4 * width * work.sequence) / t
    products = (4 if layout.recompute == FULL else 3) * forward
    moved = activations.of_layer(model, work, layout)
    times = (4 / 3 if layout.recompute == FULL else 1) / (_BANDWIDTH * gpu.bandwidth)
    traffic = Range(_READS.low * moved.low * times, _READS.high * moved.high * times)
    return _products(products, work, gpu) + traffic


def head_seconds(model: Transformer, work: Work, layout: Layout, gpu: Gpu) -> Range:
    """The same of the head and the loss."""
    tokens, t = work.sequence * layout.micro_batch, layout.tensor
    products = 6 * tokens * model.embedding / t
    logits = activations.of_head(model, work, layout)
    moved = Range(logits.low, 2 * logits.high) * (1 / (_BANDWIDTH * gpu.bandwidth))
    return _products(products, work, gpu) + moved


def update_seconds(parameters: float, work: Work, shards: int, gpu: Gpu) -> Range:
    """Seconds of the optimizer's update of a rank's parameters: it reads all of its states and writes them."""
    each = states(work.precision, work.optimizer, work.fp32_gradients)
    moved = parameters / shards * (2 * each.weights + each.gradients + 2 * each.optimizer)
    return Range(1, 2) * (moved / (_BANDWIDTH * gpu.bandwidth))


def _products(flops: float, work: Work, gpu: Gpu) -> Range:
    peak = (gpu.tf32_tflops or gpu.fp32_tflops if work.precision == FP32 else gpu.half_tflops) * 1e12
    best = flops / (peak * gpu.reached)
    return Range(best, best / _OF_REACHED)
