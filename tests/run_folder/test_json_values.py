"""Fields of files that anybody may have edited become numbers and text, or None."""

from __future__ import annotations

from typing import Any

import pytest

from slurmopt.run_folder.json_values import as_int, names, number, text

NO_NUMBERS = [None, True, [3], {}, float("nan"), float("inf"), 10**400]


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_finite_number_is_none(value: Any) -> None:
    assert number(value) is None
    assert as_int(value) is None


@pytest.mark.parametrize(("value", "whole"), [(3, 3), (3.0, 3), (-3, -3), ("3", 3), (3.5, None), ("-3", None)])
def test_whole_numbers(value: Any, whole: int | None) -> None:
    assert as_int(value) == whole


@pytest.mark.parametrize("value", ["٣", "1" * 16, "3.0", "", 2**53])
def test_no_whole_number_of_a_sane_size(value: Any) -> None:
    assert as_int(value) is None


def test_text_is_one_line() -> None:
    assert text("node1\n\x1b[2J") == "node1\\n\\x1b[2J"
    assert (text(12), text(""), text(True), text(["a"])) == ("12", None, None, None)


def test_names_of_a_list() -> None:
    assert names(["node1", 2, None, "x\n"]) == "node1,2,x\\n"
    assert (names([]), names("node[1-2]")) == (None, "node[1-2]")
