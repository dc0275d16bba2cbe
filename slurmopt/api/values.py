"""The kinds of values that Python gives to keys of a config, and what each becomes there.

A value is one thing, and all runs have it: a text, a number, a bool, None, a mapping, a tuple (a list in the config).
An axis is a list, a range or an array, and each of its items is the value of one run, or point, of a sweep.
"""

from __future__ import annotations

import enum
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from slurmopt.errors import ConfigError
from slurmopt.run_folder.variables import escaped


class Array(Protocol):
    """A one-dimensional array of numpy, torch or pandas."""

    def __len__(self) -> int: ...
    def tolist(self) -> Any: ...


Value: TypeAlias = bool | int | float | str | os.PathLike[str] | enum.Enum | Mapping[str, Any] | tuple[Any, ...] | None
Axis: TypeAlias = list[Any] | range | Array

_VALID = "a text, number, bool, None, path, enum, mapping or tuple; a list, range or array is an axis of a sweep"


def plain(value: Any, key: str) -> Any:
    """`value` as a config can hold it, made of dicts, lists, texts, numbers, bools and None only. ConfigError."""
    value = _without_array(value)
    if isinstance(value, Mapping):
        return {_checked_key(name, key): plain(item, f"{key}.{name}") for name, item in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [plain(item, f"{key}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        return _text(str(value), key)
    if value is None or isinstance(value, (bool, int, float)):
        return _number(value)
    raise ConfigError(f"is of type {type(value).__name__}; valid: {_VALID}", key)


def axis_of(value: Any) -> Sequence[Any] | None:
    """The values of an axis of a sweep; None where `value` is one value."""
    value = _without_array(value)
    return value if isinstance(value, (list, range)) else None


def _without_array(value: Any) -> Any:
    """Arrays as lists, and their numbers as Python's, known by their methods: nothing is imported for that."""
    if not isinstance(value, (str, Mapping, type)) and hasattr(value, "tolist") and hasattr(value, "dtype"):
        return value.tolist()
    return value


def _number(value: Any) -> Any:
    """The number without its subclass, such as that of an IntEnum or of numpy.float64."""
    if value is None or isinstance(value, bool):
        return value
    return int(value) if isinstance(value, int) else float(value)


def _text(text: str, key: str) -> str:
    if text == "???":
        raise ConfigError("'???' stands for a missing value in Hydra; give another text", key)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{text!r} is not valid Unicode", key) from error
    return text


def _checked_key(name: Any, key: str) -> Any:
    if isinstance(name, str):
        return _text(name, key)
    if isinstance(name, (bool, int, float)):
        return _number(name)
    raise ConfigError(f"{name!r} is no key; valid: texts", key)


def literals(value: Any) -> Any:
    """`value` of `plain`, with `${` in texts written so that it is no interpolation."""
    if isinstance(value, dict):
        return {name: literals(item) for name, item in value.items()}
    if isinstance(value, list):
        return [literals(item) for item in value]
    return escaped(value) if isinstance(value, str) else value


def same(one: Any, other: Any) -> bool:
    """Whether two values of `plain` are equal, also in their types."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        pairs = zip(one.items(), other.items(), strict=False)
        return len(one) == len(other) and all(same([*item], [*wanted]) for item, wanted in pairs)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) or (isinstance(one, float) and math.isnan(one) and math.isnan(other))
