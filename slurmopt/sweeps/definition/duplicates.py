"""Two points that are the same are one point too many."""

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
        seen: dict[Hashable, int] = {}
        for index in axis:
            values = [column.value(index) for column in axis.columns]
            first = seen.setdefault(tuple(map(_identity, values)), index)
            if first != index:
                said = ", ".join(map(shown, values))
                raise ConfigError(
                    f"{said} comes twice (value {first + 1} and {index + 1}), which would run the same point twice",
                    ", ".join(axis.keys),
                )


def _plainly_different(column: Column) -> bool:
    """The quick answer for many numbers or texts."""
    if isinstance(column.values, (Interval, range)):
        return True
    return set(map(type, column.values)) in ({int}, {str}) and len(set(column.values)) == len(column.values)


def _identity(value: Any) -> Hashable:
    """What tells values apart: 1 is not 1.0, and nan is nan."""
    if isinstance(value, (str, int, bool)) or value is None:
        return (type(value), value)
    if isinstance(value, float):
        return (float, repr(value))
    return json.dumps(encode(value), sort_keys=True)
