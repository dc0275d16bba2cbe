"""Fields of JSON files that anybody may have edited, as numbers and text: None where a value has another type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from slurmopt.errors import one_line

_Fields = TypeVar("_Fields")
_LARGEST = 2**53
"""Up to this value a float represents every integer."""
LARGEST = 1e100
"""No measurement is as large; sums and products of such numbers stay finite."""


def from_json(kind: type[_Fields], text: str) -> _Fields:
    """The dataclass `kind` of a JSON object, as one version of slurmopt writes it for another. Raises ValueError."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"not a JSON object: {text!r}")
    return from_fields(kind, value)


def from_fields(kind: type[_Fields], value: Mapping[str, Any]) -> _Fields:
    """The dataclass `kind` with the fields of `value`, without those that only another version knows. Raises TypeError
    where one is missing that has no default."""
    known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: item for name, item in value.items() if name in known})


def number(value: Any) -> float | None:
    """`value`, if it is a number, and no absurdly large one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if -LARGEST <= value <= LARGEST else None


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
