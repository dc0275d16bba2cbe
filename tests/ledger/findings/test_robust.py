"""Statistics of all values but one: the numbers of the plain way, in linear time."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmopt.ledger.findings import robust
from slurmopt.ledger.findings.robust import Others, spread

VALUES = st.lists(st.floats(-1e6, 1e6) | st.integers(0, 3).map(float), min_size=2, max_size=12)


@given(values=VALUES)
def test_the_others_are_all_values_but_one(values: list[float]) -> None:
    others = Others(values)
    for at, value in enumerate(values):
        left = [*values[:at], *values[at + 1 :]]
        assert others.median(value) == median(left)
        assert others.spread(value) == spread(left)


@pytest.mark.parametrize("count", [1000, 1001])
def test_the_spreads_of_a_thousand_ranks_sort_their_values_a_few_times(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sorts = []

    def counted(values: Any) -> list[float]:
        ordered = sorted(values)
        sorts.append(len(ordered))
        return ordered

    monkeypatch.setattr(robust, "sorted", counted, raising=False)
    values = [float(number * 7919 % count) for number in range(count)]
    others = Others(values)
    assert all(others.spread(value) > 0 for value in values)
    assert sum(sorts) <= 4 * count
