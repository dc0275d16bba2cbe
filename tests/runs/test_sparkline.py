"""Values as a row of blocks."""

from __future__ import annotations

import math

from slurmopt.runs.sparkline import sparkline


def test_from_the_least_value_to_the_largest() -> None:
    assert sparkline([1.0, 2.0, 3.0, 4.0, 8.0]) == "▁▂▃▄█"
    assert sparkline([0.0, 50.0, 100.0, 150.0], 0.0, 100.0) == "▁▅██"
    assert sparkline([]) == ""


def test_no_value_is_a_blank_and_an_odd_one_a_mark() -> None:
    assert sparkline([0.0, None, math.nan, math.inf, 8.0]) == "▁ !!█"


def test_equal_values_are_in_the_middle_unless_the_least_is_known() -> None:
    assert sparkline([3.0, 3.0]) == "▅▅"
    assert sparkline([0.0, 0.0], 0.0, 100.0) == "▁▁"
    assert sparkline([0.0, 0.0], 0.0) == "▁▁"


def test_spans_at_the_ends_of_floats() -> None:
    assert sparkline([0.0, None, 1.0], 0.0, 5e-324) == "▁ █"
    assert sparkline([-1.7e308, 1.7e308]) == "▅▅"
