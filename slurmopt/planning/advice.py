"""What to change when a training does not fit, in the order of what it costs, each with what it saves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from slurmopt.planning.layout import CHUNKED, EAGER, FLASH, FULL, PLAIN, Layout, Work
from slurmopt.planning.memory.peak import RUNTIME, Memory, memory
from slurmopt.planning.models.transformer import Transformer
from slurmopt.planning.ranges import Range
from slurmopt.planning.states import ADAMW, ADAMW_8BIT, AUTOCAST, FP32, POLICY

_GIB = 2**30
_Candidate = tuple[str, str, Work, Layout]
"""What changes, what that costs, and the training then."""


@dataclass(frozen=True)
class Change:
    """One thing to change."""

    what: str
    cost: str
    """What it costs."""
    peak: Range
    """Bytes of the peak with this change alone."""
    saves: float
    """Bytes of the middle of the peak."""


def changes(model: Transformer, work: Work, layout: Layout, domain: int, runtime: Range = RUNTIME) -> list[Change]:
    """Those that save something, the cheapest first."""
    now = memory(model, work, layout, runtime)
    found = []
    for what, cost, other_work, other_layout in _candidates(work, layout, model, domain, now):
        peak = memory(model, other_work, other_layout, runtime).peak
        if (saves := now.peak.middle - peak.middle) > 0.01 * now.peak.middle:
            found.append(Change(what, cost, peak, saves))
    return found


def _candidates(work: Work, layout: Layout, model: Transformer, domain: int, now: Memory) -> Iterator[_Candidate]:
    yield from _on_one_rank(work, layout)
    yield from _of_numbers(work, layout)
    yield from _over_more_ranks(work, layout)
    yield from _on_the_host(work, layout, now)
    yield from _in_parts(work, layout, model, domain)


def _on_one_rank(work: Work, layout: Layout) -> Iterator[_Candidate]:
    if layout.micro_batch > 1:
        half = max(1, layout.micro_batch // 2)
        yield f"micro-batch {half}, accumulated", "smaller matrix products", work, replace(layout, micro_batch=half)
    if work.attention == EAGER:
        yield "flash attention", "nothing", replace(work, attention=FLASH), layout
    if work.loss == PLAIN:
        yield "a loss that takes the logits in chunks", "next to nothing", replace(work, loss=CHUNKED), layout
    if layout.fused is not True:
        yield "fused AdamW and norms", "nothing on CUDA", work, replace(layout, fused=True)
    if layout.recompute != FULL:
        yield "activation checkpointing of each layer", "a third more arithmetic", work, replace(layout, recompute=FULL)


def _of_numbers(work: Work, layout: Layout) -> Iterator[_Candidate]:
    to = POLICY if layout.stage == 3 else AUTOCAST
    if work.precision in (FP32, AUTOCAST) and to != work.precision:
        yield f"precision {to}", "rounding", replace(work, precision=to), layout
    if work.optimizer == ADAMW:
        yield "AdamW with 8-bit states", "accuracy, to be checked", replace(work, optimizer=ADAMW_8BIT), layout


def _over_more_ranks(work: Work, layout: Layout) -> Iterator[_Candidate]:
    if layout.stage < 3 and layout.data > 1:
        to = replace(work, precision=POLICY if work.precision == AUTOCAST else work.precision)
        yield "FSDP2 over all ranks", "half as much communication again", to, replace(layout, stage=3)
    if layout.stage:
        yield "twice as many GPUs", "GPU-hours, where communication shows", work, replace(layout, data=2 * layout.data)


def _on_the_host(work: Work, layout: Layout, now: Memory) -> Iterator[_Candidate]:
    """Offload: over PCIe, into memory of the host, of which each rank needs what its GPU is rid of."""
    states, kept = (f"{size / _GIB:,.3g} GiB of the host for each rank" for size in (
        now.parts["optimizer"].low, now.parts["activations"].high))  # fmt: skip
    if not layout.optimizer_on_host:
        cost = f"an update on the CPU, gradients and weights over PCIe each step; {states}"
        yield "the optimizer's states on the host", cost, work, replace(layout, optimizer_on_host=True)
    if not layout.activations_on_host:
        cost = f"activations over PCIe twice each micro-batch; {kept}"
        yield "activations on the host", cost, work, replace(layout, activations_on_host=True)


def _in_parts(work: Work, layout: Layout, model: Transformer, domain: int) -> Iterator[_Candidate]:
    tensor, pipeline = 2 * layout.tensor, 2 * layout.pipeline
    if layout.data % 2:
        return
    half = replace(layout, data=layout.data // 2, shard=None)
    if tensor <= domain and model.heads % tensor == 0:
        split = replace(half, tensor=tensor)
        yield f"tensor parallelism over {tensor}", "collectives that nothing hides", work, split
    if model.layers % pipeline == 0:
        yield f"a pipeline of {pipeline} stages", "its idle ends", work, replace(half, pipeline=pipeline)
