"""Sets of point numbers behave as sets do, however they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmopt.grid.point_ranges import Ranges

NUMBERS = st.sets(st.integers(0, 60))


def of(numbers: set[int]) -> Ranges:
    return Ranges.of(numbers)


@given(NUMBERS, NUMBERS)
def test_as_sets(one: set[int], other: set[int]) -> None:
    assert set(of(one).union(of(other))) == one | other
    assert set(of(one).difference(of(other))) == one - other
    assert set(of(one).intersection(of(other))) == one & other
    assert len(of(one)) == len(one)
    assert [number in of(one) for number in range(61)] == [number in one for number in range(61)]


@given(NUMBERS, st.integers(0, 70), st.integers(0, 70))
def test_as_sorted_lists(numbers: set[int], start: int, stop: int) -> None:
    listed, ranges = sorted(numbers), of(numbers)
    assert list(ranges) == listed
    assert list(ranges.slice(start, stop)) == listed[start:stop]
    assert [ranges[position] for position in range(len(ranges))] == listed
    assert [ranges.position(number) for number in listed] == list(range(len(listed)))


@given(NUMBERS)
def test_the_text_is_read_back(numbers: set[int]) -> None:
    assert Ranges.parse(str(of(numbers))) == of(numbers)


def test_neighbours_are_one_span() -> None:
    assert str(Ranges.of([3, 1, 2, 7])) == "1-3,7"
    assert str(Ranges([(0, 999_999)]).difference(Ranges.of([5]))) == "0-4,6-999999"


@pytest.mark.parametrize("text", ["a", "1-", "-1", "3-1", "1,,2", "1 2", "٣"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"valid|did you mean"):
        Ranges.parse(text)


def test_beyond_the_end() -> None:
    with pytest.raises(IndexError):
        Ranges.parse("1-3")[3]
    with pytest.raises(ValueError, match="not among"):
        Ranges.parse("1-3").position(4)
