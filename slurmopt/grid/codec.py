"""Converts values of a config to standard JSON and back without loss, with non-text keys, inf, nan and bytes."""

from __future__ import annotations

import math
from typing import Any

_MARK = "__slurmopt__"


def encode(value: Any) -> Any:
    """`value` as JSON types. TypeError for what a config cannot contain."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_MARK: ["float", repr(value)]}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value) and _MARK not in value:
            return {key: encode(item) for key, item in value.items()}
        return {_MARK: ["items", [[encode(key), encode(item)] for key, item in value.items()]]}
    if isinstance(value, bytes):
        return {_MARK: ["bytes", value.hex()]}
    raise TypeError(f"a {type(value).__name__} cannot be stored")


def decode(value: Any) -> Any:
    """The value that `encode` got. ValueError or TypeError for what `encode` did not return."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _MARK not in value:
        return {key: decode(item) for key, item in value.items()}
    kind, content = value[_MARK]
    if kind == "items":
        return {decode(key): decode(item) for key, item in content}
    return float(content) if kind == "float" else bytes.fromhex(content)
