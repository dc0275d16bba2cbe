"""Sizes, bandwidths, the fit, the tournament of the links, and what counts as slow."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from slurmopt.collectives.alpha_beta import fit
from slurmopt.collectives.definitions import COLLECTIVES, algbw, busbw, fitting_size
from slurmopt.collectives.options import options_of
from slurmopt.collectives.outliers import Link, outliers
from slurmopt.collectives.rounds import MOST_ROUNDS, rounds
from slurmopt.errors import ConfigError


def test_the_factors_are_those_of_nccl_tests() -> None:
    at_8 = {"all_reduce": 1.75, "all_gather": 0.875, "reduce_scatter": 0.875, "broadcast": 1.0, "all_to_all": 0.875}
    assert algbw(10**9, 0.5) == 2.0
    assert {name: busbw(name, 10**9, 0.5, 8) / 2 for name in COLLECTIVES} == at_8


def test_sizes_that_do_not_divide_are_rounded_down() -> None:
    assert fitting_size("all_reduce", 1001, 3) == 1000
    assert fitting_size("all_gather", 1001, 3) == 996  # 83 elements of 4 bytes for each of 3 ranks
    assert fitting_size("all_to_all", 11, 3) == 0


def test_the_fit_finds_latency_and_bandwidth() -> None:
    generator = random.Random(1)
    sizes = [1024 * 4**power for power in range(9)]
    times = [(20e-6 + size / 10e9) * generator.gauss(1, 0.02) for size in sizes]
    found = fit(sizes, times)
    assert found is not None
    assert found.alpha_error is not None
    assert found.beta_error is not None
    assert abs(found.alpha - 20e-6) < 4 * found.alpha_error < 4e-6
    assert abs(found.beta - 10e9) < 4 * found.beta_error < 2e9
    assert found.relative_error < 0.05
    assert not found.is_bad


def test_a_fit_that_describes_nothing_says_so() -> None:
    step = fit([1024, 4096, 16384, 65536], [10e-6, 10e-6, 500e-6, 510e-6])  # another algorithm from 16 KiB on
    assert step is not None
    assert step.is_bad
    falling = fit([1024, 1 << 20], [2e-3, 1e-3])
    assert falling is not None
    assert (falling.beta, falling.alpha_error, falling.is_bad) == (None, None, True)
    assert fit([1024], [1e-3]) is None


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8, 32])
def test_each_pair_meets_once_and_nobody_is_in_two_pairs(count: int) -> None:
    found = rounds(count)
    assert sorted(itertools.chain(*found)) == sorted(itertools.combinations(range(count), 2))
    for pairs in found:
        members = list(itertools.chain(*pairs))
        assert len(members) == len(set(members))


def test_many_endpoints_meet_a_bounded_number_of_others() -> None:
    found = rounds(1000)
    assert len(found) == MOST_ROUNDS
    pairs = list(itertools.chain(*found))
    assert len(pairs) == len(set(pairs)) == MOST_ROUNDS * 500
    assert set(Counter(itertools.chain(*pairs)).values()) == {MOST_ROUNDS}


def _links(count: int, slow: set[frozenset[int]], factor: float = 5) -> list[Link]:
    generator = random.Random(count)
    return [
        Link(
            f"node{a}", f"node{b}", 20e-6 * generator.gauss(1, 0.03),
            10e9 * generator.gauss(1, 0.03) / (factor if frozenset((a, b)) in slow else 1),
        )
        for a, b in itertools.combinations(range(1, count + 1), 2)
    ]  # fmt: skip


@pytest.mark.parametrize("count", [3, 4, 8, 20])
def test_a_slow_node_and_a_slow_link(count: int) -> None:
    node = {frozenset((1, other)) for other in range(2, count + 1)}
    (found,) = outliers(_links(count, node))
    assert (found.kind, found.name, found.measure, found.links) == ("node", "node1", "bandwidth", count - 1)
    assert found.factor == pytest.approx(5, rel=0.2)
    (link,) = outliers(_links(count, {frozenset((2, 3))}))
    assert (link.kind, link.name) == ("link", "node2 ↔ node3")
    assert outliers(_links(count, set())) == []


def test_two_slow_nodes_and_the_link_between_two_others() -> None:
    slow = {frozenset((bad, other)) for bad in (1, 2) for other in range(1, 9) if other != bad} | {frozenset((5, 6))}
    found = [(one.kind, one.name) for one in outliers(_links(8, slow))]
    assert sorted(found[:2]) == [("node", "node1"), ("node", "node2")]
    assert found[2:] == [("link", "node5 ↔ node6")]


def test_fifty_slow_nodes_of_four_hundred() -> None:
    slow = {frozenset((bad, other)) for bad in range(1, 51) for other in range(1, 401) if other != bad}
    found = outliers(_links(400, slow))  # 79,800 links: nothing here may take their square
    assert {(one.kind, one.name) for one in found} == {("node", f"node{bad}") for bad in range(1, 51)}


def test_one_link_has_nothing_to_be_compared_with() -> None:
    assert outliers([Link("node1", "node2", 1.0, 1.0)]) == []


def test_a_range_of_sizes() -> None:
    assert options_of({"sizes": "1K..64K"}).sizes == (1024, 4096, 16384, 65536)
    assert options_of({"sizes": ["1M", 8]}).sizes == (8, 1 << 20)
    assert options_of(options_of({}).as_dict()) == options_of({})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": "1K"}, "bench.size: no such key; valid: collectives, sizes"),
        ({"collectives": "allreduce"}, "bench.collectives: no collective 'allreduce'; valid: all_reduce, all_gather"),
        ({"collectives": []}, "bench.collectives: is empty"),
        ({"sizes": "64M..1K"}, "bench.sizes: '64M..1K' ends before it begins"),
        ({"sizes": "3"}, "bench.sizes: '3' is no size from 4 bytes"),
        ({"sizes": [None]}, "bench.sizes: 'None' is no size"),
        ({"iterations": 0}, "bench.iterations: '0' is no number from 1"),
        ({"warmup": True}, "bench.warmup: 'True' is no number from 0"),
        ({"seconds": float("nan")}, "bench.seconds: 'nan' is no number of seconds"),
        ({"pairs": "no"}, "bench.pairs: 'no' is not valid"),
    ],
)
def test_bad_options_are_one_line(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        options_of(given)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)
