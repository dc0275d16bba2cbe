"""Which shapes a training could have: nodes, parallelism and micro-batch; which of them fit, and which one to take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from slurmopt.planning.hardware import Cluster
from slurmopt.planning.layout import DDP, FSDP, FULL, HSDP, NO, STRATEGIES, Layout, Work, usual_precision, why_not
from slurmopt.planning.memory.peak import Memory, memory
from slurmopt.planning.models.transformer import Transformer
from slurmopt.planning.ranges import Range
from slurmopt.planning.speed.step import StepTime, step_time

LIKELY = 0.9
"""A shape fits if its probability is at least this."""
CLOSE = 0.05
"""Of shapes whose time differs by less than this part the simplest one is taken."""
_GIB = 2**30
MORE_HOURS = 0.2
"""An earlier finish may take this part of GPU-hours more than the least."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The values of each dimension; one alone where the training cannot have another."""

    nodes: Sequence[int]
    strategies: Sequence[str] = (DDP,)
    tensor: Sequence[int] = (1,)
    pipeline: Sequence[int] = (1,)
    micro_batch: Sequence[int] = (1,)
    recompute: Sequence[str] = (NO,)
    precision: str | None = None
    """None: `policy` with fsdp and hsdp, else `autocast`."""

    def of_strategy(self, work: Work, strategy: str) -> Work:
        """The work with the precision that it has there."""
        return replace(work, precision=self.precision or usual_precision(strategy))


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What earlier attempts have shown: factors by which the formulas' intervals are replaced. None: nothing yet."""

    memory: Range | None = None
    """Measured by estimated peak, the estimate being the middle of its interval."""
    step: Range | None = None
    runs: int = 0

    def of_memory(self, peak: Range) -> Range:
        return peak if self.memory is None else peak.middle * self.memory

    def of_step(self, time: Range) -> Range:
        return time if self.step is None else time.middle * self.step


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One shape, and what it comes to."""

    nodes: int
    strategy: str
    layout: Layout
    rejected: str | None = None
    """The first reason why it cannot be; then nothing else is known unless it is memory."""
    memory: Memory | None = None
    peak: Range | None = None
    """Bytes of the rank that needs most, calibrated."""
    fits: float = 0.0
    """The probability that this is within the GPU's memory."""
    step: StepTime | None = None
    seconds: Range | None = None
    """Of a step, calibrated."""

    @property
    def simplicity(self) -> tuple[int, int, int, int]:
        """Smaller is simpler: DDP, FSDP, HSDP, then tensor, then pipeline parallelism; without recomputation first."""
        layout = self.layout
        return (
            layout.pipeline,
            layout.tensor,
            list(STRATEGIES).index(self.strategy),
            (NO, "selective", FULL).index(layout.recompute),
        )


def shapes(
    model: Transformer,
    work: Work,
    cluster: Cluster,
    choices: Choices,
    calibration: Calibration,
) -> list[Shape]:
    """All shapes of the choices, in their order."""
    return [
        _shape(nodes, strategy, layout, model, choices.of_strategy(work, strategy), cluster, calibration)
        for nodes, strategy, layout in _layouts(choices, cluster)
    ]


def _layouts(choices: Choices, cluster: Cluster) -> Iterator[tuple[int, str, Layout]]:
    for nodes in choices.nodes:
        ranks = nodes * cluster.gpus_per_node
        for strategy in choices.strategies:
            for tensor in choices.tensor:
                for pipeline in choices.pipeline:
                    for recompute in choices.recompute:
                        for micro_batch in choices.micro_batch:
                            layout = Layout(
                                data=max(1, ranks // (tensor * pipeline)),
                                tensor=tensor,
                                pipeline=pipeline,
                                stage=STRATEGIES[strategy],
                                micro_batch=micro_batch,
                                recompute=recompute,
                            )
                            if strategy == HSDP:
                                inside = max(1, cluster.gpus_per_node // tensor)
                                if inside >= layout.data and FSDP in choices.strategies:
                                    continue  # it is the same
                                layout = replace(layout, shard=min(inside, layout.data))
                            yield nodes, strategy, layout


def _shape(
    nodes: int, strategy: str, layout: Layout, model: Transformer, work: Work, cluster: Cluster,
    calibration: Calibration,
) -> Shape:  # fmt: skip
    shape = Shape(nodes=nodes, strategy=strategy, layout=layout)
    if (reason := _impossible(shape, model, work, cluster)) is not None:
        return replace(shape, rejected=reason)
    found, time = memory(model, work, layout), step_time(model, work, layout, cluster)
    peak, limit = calibration.of_memory(found.peak), cluster.gpu.memory
    fits = peak.probability_below(limit)
    return replace(
        shape,
        rejected=None if fits >= LIKELY else _too_large(peak, limit, found),
        memory=found,
        peak=peak,
        fits=fits,
        step=time,
        seconds=calibration.of_step(time.total),
    )


def _impossible(shape: Shape, model: Transformer, work: Work, cluster: Cluster) -> str | None:
    layout, ranks = shape.layout, shape.nodes * cluster.gpus_per_node
    if layout.ranks != ranks:
        return f"{layout.tensor * layout.pipeline} ranks of a copy do not divide {ranks} GPUs"
    return why_not(layout, model, work, cluster.domain)


def _too_large(peak: Range, limit: float, found: Memory) -> str:
    needs = f"{peak.low / _GIB:,.0f} to {peak.high / _GIB:,.0f} GiB of {limit / _GIB:,.0f}"
    return f"its peak is {needs} in the phase {_phase(found)}"


def _phase(found: Memory) -> str:
    return max(found.phases, key=lambda name: found.phases[name].high)


def best_of_each_size(found: Iterable[Shape]) -> list[Shape]:
    """For each number of nodes the shape to take: of those that fit and are within 5 % of the fastest the simplest."""
    by_nodes: dict[int, list[Shape]] = {}
    for shape in found:
        if shape.rejected is None:
            by_nodes.setdefault(shape.nodes, []).append(shape)
    return [_simplest(group) for _, group in sorted(by_nodes.items())]


def _simplest(group: Sequence[Shape]) -> Shape:
    fastest = min(_middle(shape) for shape in group)
    close = [shape for shape in group if _middle(shape) <= (1 + CLOSE) * fastest]
    return min(close, key=lambda shape: (shape.simplicity, _middle(shape)))


def _middle(shape: Shape) -> float:
    assert shape.seconds is not None
    return shape.seconds.middle


def front(best: Sequence[Shape]) -> list[Shape]:
    """Of the best of each size, those that no other beats in both the time and the GPU-hours of a step."""
    return [
        one
        for one in best
        if not any(
            _middle(other) <= _middle(one) and _hours(other) <= _hours(one) and other is not one
            and (_middle(other), _hours(other)) != (_middle(one), _hours(one))
            for other in best
        )
    ]  # fmt: skip


def chosen(best: Sequence[Shape]) -> Shape | None:
    """The fastest of those that take at most a fifth more GPU-hours than the least; None where none fits."""
    if not best:
        return None
    least = min(map(_hours, best))
    return min((one for one in best if _hours(one) <= (1 + MORE_HOURS) * least), key=_middle)


def _hours(shape: Shape) -> float:
    return shape.layout.ranks * _middle(shape)
