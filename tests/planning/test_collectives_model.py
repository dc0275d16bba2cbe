"""The model of collectives: its limits, and which algorithm wins where."""

from __future__ import annotations

import math

import pytest

from slurmopt.collectives.recording import Recording, Row
from slurmopt.errors import InputError
from slurmopt.planning.hardware import SLOWER, Cluster, cluster, gpu_of
from slurmopt.planning.speed.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    COLLECTIVES,
    LL,
    NVLS,
    REDUCE_SCATTER,
    RING,
    SIMPLE,
    TREE,
    choices,
    fastest,
    seconds,
)
from slurmopt.planning.speed.measured_collectives import corrected


def h100(gbits: float = 3200) -> Cluster:
    return cluster(gpu_of("h100", "a"), 8, gbits)


def a100() -> Cluster:
    return cluster(gpu_of("a100-80gb", "a"), 8, 1600)


def of(found: list, algorithm: str, protocol: str) -> float:  # type: ignore[type-arg]
    (choice,) = (each for each in found if (each.algorithm, each.protocol) == (algorithm, protocol))
    return float(choice.seconds)


@pytest.mark.parametrize(("collective", "times"), [(ALL_REDUCE, 2), (ALL_GATHER, 1), (REDUCE_SCATTER, 1)])
def test_a_large_ring_has_the_textbooks_bandwidth(collective: str, times: int) -> None:
    """2(n-1)/n · S/B of all-reduce, half of it of the others."""
    size, ranks = 64e9, 8
    found = of(choices(collective, size, ranks, 1, a100()), RING, SIMPLE)
    assert found == pytest.approx(times * (ranks - 1) / ranks * size / 240e9, rel=0.01)


def test_a_ring_over_nodes_is_as_fast_as_their_network() -> None:
    size, ranks = 64e9, 128
    found = of(choices(ALL_REDUCE, size, ranks, 16, a100()), RING, SIMPLE)
    assert found == pytest.approx(2 * (ranks - 1) / ranks * size / (12e9 * 16), rel=0.01)


def test_the_latency_of_rings_grows_with_ranks_and_of_trees_with_the_logarithm() -> None:
    def latency(algorithm: str, nodes: int) -> float:
        found = choices(ALL_REDUCE, 8, 8 * nodes, nodes, h100())
        return next(each.latency for each in found if (each.algorithm, each.protocol) == (algorithm, LL))

    assert latency(RING, 128) > 7 * latency(RING, 16)
    assert latency(TREE, 128) - latency(TREE, 64) == pytest.approx(2 * 5.0e-6)


def test_small_sizes_on_many_nodes_take_a_tree_and_large_ones_do_not() -> None:
    assert fastest(ALL_REDUCE, 64 << 10, 512, 64, h100()).algorithm == TREE
    assert fastest(ALL_REDUCE, 64 << 10, 512, 64, a100()).algorithm == TREE
    assert fastest(ALL_REDUCE, 16 << 30, 64, 8, a100()).algorithm == RING
    assert fastest(ALL_REDUCE, 1 << 30, 8, 1, h100()).algorithm == NVLS
    assert fastest(ALL_REDUCE, 1 << 30, 8, 1, a100()).algorithm == RING
    assert fastest(ALL_REDUCE, 1 << 10, 8, 1, h100()).protocol == LL


def test_with_switches_the_bus_bandwidth_exceeds_the_link() -> None:
    size = 8 << 30
    busbw = size / seconds(ALL_REDUCE, size, 8, 1, h100()) * 2 * 7 / 8
    assert busbw > h100().gpu.link


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("nodes", [1, 2, 16])
def test_more_bytes_never_take_less_time(collective: str, nodes: int) -> None:
    times = [seconds(collective, 2.0**power, 8 * nodes, nodes, h100()) for power in range(3, 36)]
    assert times == sorted(times)
    assert all(math.isfinite(time) and time > 0 for time in times)


def test_one_rank_of_a_node_has_only_its_own_adapters() -> None:
    size = 16e9
    whole, one = seconds(ALL_REDUCE, size, 32, 4, a100()), seconds(ALL_REDUCE, size, 4, 4, a100())
    assert one > 4 * whole


def test_one_rank_alone_needs_no_time() -> None:
    assert seconds(ALL_REDUCE, 1e9, 1, 1, h100()) == 0


def test_gpus_without_links_are_as_slow_as_pcie() -> None:
    l40s = cluster(gpu_of("l40s", "a"), 8, 400)
    size = 8e9
    assert seconds(ALL_REDUCE, size, 8, 1, l40s) > 6 * seconds(ALL_REDUCE, size, 8, 1, a100())


def recording(times: float, backend: str = "nccl", sizes: tuple[int, ...] = (1 << 20, 1 << 24, 1 << 28)) -> Recording:
    """What 16 ranks on two nodes would measure that are so many times slower than the model."""
    rows = [
        Row(collective, size, times * (1 + 0.02 * at) * seconds(collective, size, 16, 2, h100()), 16)
        for collective in COLLECTIVES
        for at, size in enumerate(sizes)
    ]
    return Recording(16, ["a", "b"], backend, rows=rows)


def test_a_recording_corrects_the_model() -> None:
    assert h100().slower == SLOWER
    found = corrected(h100(), recording(2.0), "today.json").slower
    assert 1.9 < found.low < 2.0 < found.high < 2.2


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        (recording(2.0, backend="gloo"), "today.json is of gloo, not of nccl"),
        (recording(2.0, sizes=(1024,)), "today.json has fewer than two sizes from 1 MiB on"),
        (Recording(16, ["a"], "nccl"), "today.json has fewer than two sizes"),
    ],
)
def test_a_recording_of_something_else_is_refused(measured: Recording, message: str) -> None:
    with pytest.raises(InputError, match=message):
        corrected(h100(), measured, "today.json")
