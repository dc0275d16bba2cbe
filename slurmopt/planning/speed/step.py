"""The time of a step: what of communication the arithmetic does not hide, and the idle ends of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from slurmopt.planning.hardware import Cluster
from slurmopt.planning.layout import FULL, Layout, Work
from slurmopt.planning.memory.peak import stage_parameters
from slurmopt.planning.models.transformer import Transformer
from slurmopt.planning.ranges import Range
from slurmopt.planning.speed import compute
from slurmopt.planning.speed.collectives import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, seconds
from slurmopt.planning.states import PRECISIONS, states

_GAMMA = 2.0
"""Pollux's exponent at the slow end: T^g = compute^g + communication^g; at the fast end the longer one
counts."""


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds of a step and of its parts, and what it does."""

    total: Range
    arithmetic: Range
    """Of all micro-batches, the update included."""
    tensor: Range
    """Collectives of tensor parallelism, which nothing hides."""
    data: Range
    """Collectives of data parallelism, before any are hidden."""
    idle: Range
    """The ends of the pipeline."""
    tokens: int
    flops: float
    """Of the model, of all ranks."""
    peak: float
    """FLOP/s of all ranks."""

    @property
    def tokens_per_second(self) -> Range:
        return Range(self.tokens / self.total.high, self.tokens / self.total.low)

    @property
    def mfu(self) -> Range:
        """The model's FLOPs by the peak of the GPUs."""
        most = self.flops / self.peak
        return Range(most / self.total.high, most / self.total.low)


def step_time(model: Transformer, work: Work, layout: Layout, cluster: Cluster) -> StepTime:
    """The time of a step of the whole training."""
    gpu, batches, p = cluster.gpu, layout.micro_batches(work), layout.pipeline
    layers = model.layers / p
    layer = compute.layer_seconds(model, work, layout, gpu)
    head = compute.head_seconds(model, work, layout, gpu)
    per_batch = layers * layer + head  # the last stage is the slowest
    tensor_layer = _tensor(model, work, layout, cluster)
    tensor = batches * layers * tensor_layer * cluster.slower
    busy = batches * per_batch
    share = (p - 1) / (layout.interleave * batches)
    idle = share * (busy + tensor) + _between_stages(model, work, layout, cluster)
    count = sum(stage_parameters(model, layout, p - 1))
    shards = layout.shards if layout.stage else 1
    update = compute.update_seconds(count, work, shards, gpu)
    data = _data(count, work, layout, cluster)
    data = Range(cluster.slower.low * data.low, cluster.slower.high * data.high)
    # Of DDP the last micro-batch's backward alone hides the collectives; FSDP has some in each.
    hiding = busy if layout.stage >= 3 else (2 / 3) * per_batch
    low = max(hiding.low, data.low) - hiding.low
    high = (hiding.high**_GAMMA + data.high**_GAMMA) ** (1 / _GAMMA) - hiding.high
    return StepTime(
        total=busy + tensor + idle + update + Range(low, high),
        arithmetic=busy + update,
        tensor=tensor,
        data=data,
        idle=idle,
        tokens=work.tokens,
        flops=compute.flops_per_token(model, work.sequence) * work.tokens,
        peak=gpu.half_tflops * 1e12 * layout.ranks,
    )


def _tensor(model: Transformer, work: Work, layout: Layout, cluster: Cluster) -> float:
    """Seconds of a layer's and micro-batch's collectives of tensor parallelism: four all-reduces of 2sbh, or as many
    bytes in all-gathers and reduce-scatters; six where forward runs twice."""
    if layout.tensor == 1:
        return 0.0
    size = PRECISIONS[work.precision].compute * work.sequence * layout.micro_batch * model.hidden
    each = seconds(ALL_REDUCE, size, layout.tensor, 1, cluster)
    return (6 if layout.recompute == FULL else 4) * each


def _between_stages(model: Transformer, work: Work, layout: Layout, cluster: Cluster) -> Range:
    """Seconds of the activations that go from stage to stage: at the fast end those that fill and empty the pipeline,
    at the slow end those of each micro-batch."""
    if layout.pipeline == 1:
        return Range(0, 0)
    size = PRECISIONS[work.precision].compute * work.sequence * layout.micro_batch * model.hidden / layout.tensor
    rate = min(cluster.gpu.link, cluster.network / cluster.gpus_per_node)
    once = size / rate
    ends = 2 * (layout.pipeline - 1) * layout.interleave
    return Range(ends * once, (ends + 2 * layout.interleave * layout.micro_batches(work)) * once)


def _data(count: float, work: Work, layout: Layout, cluster: Cluster) -> Range:
    """Seconds of the collectives of data parallelism in a step, for a rank with `count` parameters. DDP: an
    all-reduce of the gradients. FSDP: in each micro-batch two all-gathers of the weights and a reduce-scatter of the
    gradients; HSDP all-reduces those over its copies."""
    if layout.data == 1:
        return Range(0, 0)
    kind, each = PRECISIONS[work.precision], states(work.precision, work.optimizer, work.fp32_gradients)
    nodes = _nodes(layout.data, layout, cluster)
    if layout.stage < 3:
        found = seconds(ALL_REDUCE, count * each.gradients, layout.data, nodes, cluster)
        return Range(found, found)
    shards, weights = layout.shards, count * kind.compute
    inside = _nodes(shards, layout, cluster)
    gather = seconds(ALL_GATHER, weights, shards, inside, cluster)
    low = 2 * gather + seconds(REDUCE_SCATTER, weights, shards, inside, cluster)
    high = 2 * gather + seconds(REDUCE_SCATTER, 4 * count, shards, inside, cluster)
    batches, copies = layout.micro_batches(work), layout.data // shards
    across = seconds(ALL_REDUCE, 4 * count / shards, copies, copies, cluster) if copies > 1 else 0.0
    return Range(batches * low + across, batches * high + across)


def _nodes(ranks: int, layout: Layout, cluster: Cluster) -> int:
    """Nodes over which so many neighbours of data parallelism are spread."""
    beside = max(1, cluster.gpus_per_node // layout.tensor)
    return max(1, -(-ranks // beside))
