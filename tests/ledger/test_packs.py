"""Points that share the GPUs of an array task."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slurmopt.ledger.packs import divide


def test_a_second_is_divided_by_the_points_that_shared_it() -> None:
    """Two GPUs for 10 s: a point from 1 to 9 s, another from 5 s on."""
    had, idle = divide(2.0, 0, 10_000, {3: [(1000, 9000)], 4: [(5000, 10_000)]})
    assert had == {3: 2 * 4000 + 4000, 4: 4000 + 2 * 1000}
    assert idle == 2 * 1000


def test_a_point_that_was_started_again_counts_for_both_times() -> None:
    had, idle = divide(1.0, 0, 100, {0: [(0, 10), (50, 60)], 1: []})
    assert (had, idle) == ({0: 20, 1: 0}, 80)


INTERVALS = st.lists(st.tuples(st.integers(-50, 250), st.integers(-50, 250)), max_size=3)


@given(st.integers(0, 8), st.dictionaries(st.integers(0, 5), INTERVALS))
def test_each_millisecond(units: int, alive: dict[int, list[tuple[int, int]]]) -> None:
    """As if each millisecond were looked at alone."""
    had, idle = divide(float(units), 0, 200, alive)
    assert sum(had.values()) + idle == units * 200
    expected, nobody = dict.fromkeys(alive, 0.0), 0
    for at in range(200):
        points = [point for point, spans in alive.items() if any(since <= at < until for since, until in spans)]
        nobody += 0 if points else units
        for point in points:
            expected[point] += units / len(points)
    assert idle == nobody
    for point, amount in expected.items():
        assert abs(had[point] - amount) <= 2 * len(alive) * 3  # a millisecond at each change
