"""The peak of a rank's memory: the maximum over the phases of a step, not the sum of each part's own."""

from __future__ import annotations

from dataclasses import dataclass

from slurmopt.planning.layout import Layout, Work
from slurmopt.planning.memory import activations
from slurmopt.planning.memory.activations import Activations
from slurmopt.planning.models.transformer import Transformer
from slurmopt.planning.ranges import Range, exactly, largest
from slurmopt.planning.states import PRECISIONS, sharded, states

RUNTIME = Range(0.5 * 2**30, 1.5 * 2**30)
"""CUDA context, workspaces of cuBLAS and buffers of NCCL. Assumed, not computed: measure it on each kind of GPU."""
_BLOCKS = Range(1.0, 1.05)
"""What the allocator's blocks (512 B, 2 and 20 MiB) and fragments add to activations. Assumed."""
LOSS, BACKWARD, UPDATE = "loss", "end of backward", "optimizer"
"""The phases: the logits stand beside the activations of all layers; all gradients, and the activations of one layer;
the update."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of the rank that needs most."""

    parts: dict[str, Range]
    """Each part at its own maximum; they do not stand at the same time."""
    phases: dict[str, Range]
    """All that stands in a phase."""
    stage: int
    """The stage of the pipeline, from 0."""

    @property
    def peak(self) -> Range:
        """The largest phase."""
        return largest(self.phases.values())


def memory(
    model: Transformer, work: Work, layout: Layout, runtime: Range = RUNTIME, traced: Activations | None = None
) -> Memory:
    """The memory of the rank that needs most. The first stage of a pipeline holds the activations of most
    micro-batches, the last one has the logits. `traced`: activations that are known better than by formulas."""
    stages = {0, layout.pipeline - 1}
    kept = traced or activations.by_formulas(model, work, layout)
    found = (_of_stage(model, work, layout, stage, runtime, kept) for stage in sorted(stages))
    return max(found, key=lambda memory: memory.peak.high)


def stage_parameters(model: Transformer, layout: Layout, stage: int) -> tuple[float, float]:
    """Parameters of a rank of that stage, before they are sharded: those of its layers, and those outside of layers.
    Norms are counted as if tensor parallelism split them too: they are a thousandth."""
    layers = model.layers / layout.pipeline * model.layer_parameters / layout.tensor
    first, last = stage == 0, stage == layout.pipeline - 1
    outside = (model.embedding + model.positions if first else 0) + (model.rest if last else 0)
    if last and not (model.tied and first):  # a tied head of another stage is a copy
        outside += model.embedding
    return layers, outside / layout.tensor


def _of_stage(model: Transformer, work: Work, layout: Layout, stage: int, runtime: Range, kept: Activations) -> Memory:
    layers, outside = stage_parameters(model, layout, stage)
    count, kind = layers + outside, PRECISIONS[work.precision]
    each = states(work.precision, work.optimizer, work.fp32_gradients)
    over = sharded(layout.stage, layout.shards)
    weights, optimizer = count * each.weights / over.weights, count * each.optimizer / over.optimizer
    update = _update(layout, weights)
    if layout.optimizer_on_host:
        optimizer, update = 0.0, Range(0, 0)
    gradients = exactly(count * each.gradients / over.gradients) + _buckets(layout, count * each.gradients)
    casts = (layers + (0 if model.tied else outside)) * (kind.casts if layout.stage < 3 else 0)
    flight = _in_flight(model, layout, outside, kind.compute)
    alive = _micro_batches_alive(layout, work, stage)
    one_layer = _mul(_BLOCKS, kept.layer)
    held = alive * _mul(_BLOCKS, kept.stage)
    others = (alive - 1) * _mul(_BLOCKS, kept.stage)
    if layout.activations_on_host:  # the layer at work, to two where copies run beside the work
        one_layer = held = Range(one_layer.low, 2 * one_layer.high)
        others = Range(0, 0)
    head = kept.head if stage == layout.pipeline - 1 else Range(0, 0)
    saved = gradients if layout.micro_batches(work) > 1 else _buckets(layout, count * each.gradients)
    always = runtime + weights + optimizer
    phases = {
        LOSS: always + saved + casts + flight + held + head,
        BACKWARD: always + gradients + flight + others + one_layer,
        UPDATE: always + gradients + others + update,
    }
    parts = {
        "weights": exactly(weights + casts),
        "gradients": gradients,
        "optimizer": exactly(optimizer) + update,
        "activations": held,
        "logits and loss": head,
        "layers in flight": flight,
        "context, workspaces, NCCL": runtime,
    }
    return Memory(parts=parts, phases=phases, stage=stage)


def _mul(one: Range, other: Range) -> Range:
    return Range(one.low * other.low, one.high * other.high)


def _micro_batches_alive(layout: Layout, work: Work, stage: int) -> float:
    """Micro-batches whose activations a rank of that stage holds: in 1F1B min(p - i, m) of stage i, with v virtual
    stages 1 + (p - 1) / (p·v) times p of the first (2205.05198, appendix)."""
    p, v = layout.pipeline, layout.interleave
    alive = min(p - stage, layout.micro_batches(work)) if p > 1 else 1
    return alive * (1 + (p - 1) / (p * v)) if v > 1 and stage == 0 else alive


def _buckets(layout: Layout, gradients: float) -> Range:
    """DDP's buckets: as much as the gradients, unless gradient_as_bucket_view makes them one."""
    if layout.stage or layout.data == 1:
        return Range(0, 0)
    return Range(0, gradients)


def _in_flight(model: Transformer, layout: Layout, outside: float, compute: int) -> Range:
    """What FSDP2 holds unsharded: the layer at work and the one that is prefetched, with the gradients of one on their
    way; at most also the parameters outside of layers, which the root gathers."""
    if layout.stage < 3 or layout.shards == 1:
        return Range(0, 0)
    layer = model.layer_parameters / layout.tensor
    both = min(2, model.layers) * layer
    return Range(compute * both, compute * (both + outside) + 4 * (layer + outside))


def _update(layout: Layout, weights: float) -> Range:
    """What the optimizer needs beside its states: AdamW(foreach=True), the default on CUDA, as much as the weights;
    fused=True nothing."""
    if layout.fused:
        return Range(0, 0)
    return Range(0 if layout.fused is None else weights, weights)
