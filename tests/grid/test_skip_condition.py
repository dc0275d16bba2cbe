"""`sweep.skip`: Python's comparisons and nothing else of Python."""

from __future__ import annotations

import re

import pytest

from slurmopt.errors import ConfigError
from slurmopt.grid.skip_condition import condition


@pytest.mark.parametrize(
    ("text", "values", "holds"),
    [
        ("${lr} > 1e-3 and ${ n } in [1, 2]", [0.1, 2], True),
        ("not (${a} == 'x' or ${b} != null)", ["y", None], True),
        ("len(${a}) + abs(-1) == max(3, 2) and min(${a}) < 'b'", ["ab"], True),
        ("${a} // 2 * 3 % 4 - -1 >= 3 / 1", [5], True),
        ("1 < ${a} <= 3", [3], True),
        ("${a} == ${a} and ${a} == 'a and b'", ["a and b"], True),
        ("${a.b} not in (1, 'x') and ${flag}", [2, False], False),
        ("${a} == true\n  and ${b} == 'it\\'s'", [True, "it's"], True),
        ('${quote} == "\'"', ["'"], True),
    ],
)
def test_conditions(text: str, values: list[object], holds: bool) -> None:
    assert condition(text).holds(values) is holds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__import__('os').system('x') or ${a}", "call of"),
        ("${a}.__class__", "attribute is not allowed"),
        ("${a}[0]", "subscript is not allowed"),
        ("[x for x in ${a}]", "listcomp is not allowed"),
        ("(lambda: 1)() or ${a}", "call of"),
        ("${a} ** 99", r"'\*\*' is not allowed"),
        ("f'{${a}}'", "not allowed|no condition"),
        ("(b := ${a})", "namedexpr is not allowed"),
        ("lr > 1", "name 'lr'"),
        ("open(${a})", "call of 'open'"),
        ("len(*${a})", "'\\*' is not allowed"),
        ("max(${a}, key=len)", "call of 'max'"),
        ("'${a}' == 'x'", "in quotes"),
        ("${a", "not a plain key"),
        ("${a:${b}}", "not a plain key"),
        ("1 < 2", "asks for no key"),
        ("", "is not a condition"),
        ("${a} ==", "is not a condition"),
        ("${a})  or (1", "is not a condition"),
        ("(" * 500 + "${a}" + ")" * 500, "is not a condition"),
        ("${a} == 1j", "not allowed"),
        ("${a}\0", "is not a condition"),
    ],
)
def test_anything_else_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        condition(text)
    assert re.search(message, str(error.value))
    assert str(error.value).isprintable()


def test_values_that_cannot_be_compared_are_named() -> None:
    with pytest.raises(ConfigError, match=r"'>' not supported.*with lr a str"):
        condition("${lr} > 1").holds(["a"])
    with pytest.raises(ConfigError, match="division by zero"):
        condition("1 / ${lr} > 1").holds([0])
