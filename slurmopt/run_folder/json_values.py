"""Fields of JSON files that anybody may have edited, as numbers and text: None where a value has another type."""

from __future__ import annotations

import math
from typing import Any

from slurmopt.errors import one_line

_LARGEST = 2**53
"""Up to this value a float represents every integer."""


def number(value: Any) -> float | None:
    """`value`, if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def as_int(value: Any) -> int | None:
    """`value` as an int, if it is a whole number or the text of one, and no absurdly large one."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 16:
        return int(value)
    return int(value) if number(value) is not None and value == int(value) and abs(value) < _LARGEST else None


def text(value: Any) -> str | None:
    """`value` as one line, if it is a text or a number."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    return one_line(str(value)) or None


def names(value: Any) -> str | None:
    """`value` as one line, with commas between the items of a list, as somebody else might note nodes."""
    if isinstance(value, list):
        return ",".join(filter(None, map(text, value))) or None
    return text(value)
