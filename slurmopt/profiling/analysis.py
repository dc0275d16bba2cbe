"""What the traces of a capture say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurmopt.errors import InputError
from slurmopt.profiling import collectives, operations
from slurmopt.profiling.breakdown import Breakdown, breakdown
from slurmopt.profiling.collectives import Collective, Straggler
from slurmopt.profiling.matrix_products import Product, products
from slurmopt.profiling.operations import Launches, Operation
from slurmopt.profiling.trace import Trace


@dataclass(frozen=True)
class RankProfile:
    """One rank."""

    rank: int
    device: str | None
    breakdown: Breakdown
    operations: Sequence[Operation]
    launches: Launches | None
    products: Sequence[Product] = ()
    """Matrix products whose shapes are known, on a device."""

    @property
    def step_seconds(self) -> float | None:
        """The mean time of a step; None if the trace has no whole step."""
        return self.breakdown.seconds / self.breakdown.steps if self.breakdown.steps else None


@dataclass(frozen=True)
class Profile:
    """All traced ranks."""

    ranks: Sequence[RankProfile]
    world_size: int | None
    collectives: Sequence[Collective]
    straggler: Straggler | None


def analyse(traces: dict[int, Trace]) -> Profile:
    """Rank → its trace; at least one."""
    found = collectives.joined(traces)
    sizes = [trace.world_size for trace in traces.values() if trace.world_size is not None]
    return Profile(
        ranks=[_of_rank(rank, trace) for rank, trace in sorted(traces.items())],
        world_size=max(sizes, default=None),
        collectives=found,
        straggler=collectives.straggler(found),
    )


def _of_rank(rank: int, trace: Trace) -> RankProfile:
    whole = breakdown(trace)
    if whole.seconds <= 0:
        raise InputError(f"the trace of rank {rank} covers no time; it is damaged")
    return RankProfile(
        rank, trace.device, whole, operations.operations(trace), operations.launches(trace), products(trace)
    )
