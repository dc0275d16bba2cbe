"""The collectives of the benchmark, with the sizes and bandwidths that nccl-tests defines.

Sources: `doc/PERFORMANCE.md` of NVIDIA/nccl-tests, and the functions `…GetBw` and `…GetCollByteCount` of its
`src/*.cu`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

ELEMENT = 4
"""Bytes of an element: float32, the default of nccl-tests."""


@dataclass(frozen=True)
class Collective:
    """One collective. The size S of a row is in bytes:

    all_reduce, broadcast       the array of one rank
    all_gather                  what one rank has received in the end, the part of all ranks together
    reduce_scatter, all_to_all  what one rank gives, the parts for all ranks together

    That is the column `size` of nccl-tests: the larger one of a rank's send and receive buffer (`TimeTest` in
    `src/common.cu`).
    """

    name: str
    factor: Callable[[int], float]
    """World size → busbw / algbw, by the summary of `doc/PERFORMANCE.md`."""
    splits: bool
    """Whether each rank has one part of the array, so that S is a multiple of the world size."""
    program: str
    """The program of nccl-tests."""


def _ring(world: int) -> float:
    return (world - 1) / world


_ALL = (
    Collective("all_reduce", lambda world: 2 * _ring(world), False, "all_reduce_perf"),
    Collective("all_gather", _ring, True, "all_gather_perf"),
    Collective("reduce_scatter", _ring, True, "reduce_scatter_perf"),
    Collective("broadcast", lambda world: 1.0, False, "broadcast_perf"),
    Collective("all_to_all", _ring, True, "alltoall_perf"),
)
COLLECTIVES = {collective.name: collective for collective in _ALL}


def algbw(size: int, seconds: float) -> float:
    """Algorithm bandwidth in GB/s (10⁹ bytes): S / t (`doc/PERFORMANCE.md`, "Algorithm bandwidth")."""
    return size / seconds / 1e9 if seconds > 0 else 0.0


def busbw(name: str, size: int, seconds: float, world: int) -> float:
    """Bus bandwidth in GB/s: algbw times the collective's factor (`doc/PERFORMANCE.md`, "Bus bandwidth"). It can exceed
    the rate of a link where switches reduce (NVLS, SHARP)."""
    return algbw(size, seconds) * COLLECTIVES[name].factor(world)


def fitting_size(name: str, size: int, world: int) -> int:
    """`size` rounded down to whole elements, and to equal parts of them where the collective splits its array; 0 where
    it is too small. nccl-tests rounds down too, for some collectives to parts of 16 bytes."""
    unit = ELEMENT * (world if COLLECTIVES[name].splits else 1)
    return size // unit * unit
