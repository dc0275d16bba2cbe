"""Fits to probe runs, and the measures of scaling."""

from __future__ import annotations

import math
import random

import pytest

from slurmopt.errors import InputError
from slurmopt.planning.scaling import Probe, fit, strong_efficiency, weak_efficiency


def test_the_measures_are_the_textbooks() -> None:
    assert strong_efficiency(10.0, 4, 2.5) == 1.0
    assert weak_efficiency(1.0, 1.25) == 0.8
    assert all(0 < strong_efficiency(1.0, n, 0.1 + 0.9 / n) <= 1 for n in (1, 2, 11, 1000))


def test_a_fit_of_amdahls_law_finds_it() -> None:
    found = fit([Probe(n, 0.2 + 3.8 / n) for n in (1, 2, 4)])
    assert found.serial_fraction == pytest.approx(0.05)
    assert found.predicted(8).seconds.middle == pytest.approx(0.2 + 3.8 / 8)


def test_weak_scaling_grows_with_the_logarithm() -> None:
    found = fit([Probe(n, 1.0 + 0.03 * math.log2(n)) for n in (1, 2, 4)], weak=True)
    assert found.predicted(16).seconds.middle == pytest.approx(1.12)


@pytest.mark.parametrize("seed", range(5))
def test_a_third_node_count_is_within_the_interval_in_most_cases(seed: int) -> None:
    draw, inside = random.Random(seed), 0
    for _ in range(100):
        serial, noise = draw.uniform(0, 0.4), draw.uniform(0, 0.03)

        def measured(n: int, serial: float = serial, noise: float = noise) -> float:
            return (serial + 4 / n) * (1 + draw.gauss(0, noise))

        seconds = fit([Probe(n, measured(n)) for n in (1, 2) for _ in range(3)]).predicted(4).seconds
        inside += seconds.low <= measured(4) <= seconds.high
    assert inside >= 85


def test_more_than_four_times_the_largest_probe_is_marked_and_wider() -> None:
    found = fit([Probe(1, 4.0), Probe(2, 2.1)])
    near, far = found.predicted(8), found.predicted(9)
    assert not near.is_far
    assert far.is_far
    assert far.seconds.high / far.seconds.low > near.seconds.high / near.seconds.low
    assert not found.predicted(1).is_far


def test_neither_part_is_negative_where_more_nodes_are_faster_than_linear() -> None:
    found = fit([Probe(1, 4.0), Probe(2, 1.8)])
    assert found.serial == 0
    assert found.predicted(100).seconds.low > 0


@pytest.mark.parametrize(
    ("probes", "message"),
    [
        ([Probe(1, 1.0), Probe(1, 1.1)], "probes of 1 node count; valid: two different ones or more"),
        ([], "probes of 0 node count"),
        ([Probe(1, 1.0), Probe(2, 0.0)], "a probe of 2 nodes took 0.0 s; valid: times above 0"),
        ([Probe(1, math.nan), Probe(2, 1.0)], "a probe of 1 nodes took nan s"),
        ([Probe(1, 1e300), Probe(2, 1.0)], "a probe of 1 nodes took 1e\\+300 s; valid: times above 0, up to years"),
        ([Probe(1, 1.0), Probe(2, 1e-300)], "a probe of 2 nodes took 1e-300 s"),
    ],
)
def test_probes_that_tell_nothing_are_refused(probes: list[Probe], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(probes)
