"""Rejects sweeps in which two points have the same config."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

from slurmopt.errors import ConfigError
from slurmopt.grid.axes import Axis, Column, Interval
from slurmopt.grid.codec import encode
from slurmopt.sweeps.definition.values import shown


def refuse_equal_values(axes: list[Axis]) -> None:
    """ConfigError where an axis has the same value twice; of keys that advance together, the same values."""
    for axis in axes:
        if len(axis.columns) == 1 and _plainly_different(axis.columns[0]):
            continue
        first_index: dict[Hashable, int] = {}
        for index in axis:
            values = [column.value(index) for column in axis.columns]
            first = first_index.setdefault(tuple(map(_identity, values)), index)
            if first != index:
                values_text = ", ".join(map(shown, values))
                raise ConfigError(
                    f"{values_text} comes twice (value {first + 1} and {index + 1}), "
                    "which would run the same point twice",
                    ", ".join(axis.keys),
                )


def _plainly_different(column: Column) -> bool:
    """Whether the values are different by a quick check, which suffices for numbers and texts."""
    if isinstance(column.values, (Interval, range)):
        return True
    return set(map(type, column.values)) in ({int}, {str}) and len(set(column.values)) == len(column.values)


def _identity(value: Any) -> Hashable:
    """The identity by which values are compared: 1 differs from 1.0, and nan equals nan."""
    if isinstance(value, (str, int, bool)) or value is None:
        return (type(value), value)
    if isinstance(value, float):
        return (float, repr(value))
    return json.dumps(encode(value), sort_keys=True)
