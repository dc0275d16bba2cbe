"""Values of a config as JSON that any reader takes, and back without loss: keys that are no text, inf, nan, bytes."""

from __future__ import annotations

import math
from typing import Any

_MARK = "__slurmopt__"


def encode(value: Any) -> Any:
    """`value` in JSON's terms. TypeError for what no config holds."""
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
    """What `encode` was given. ValueError or TypeError for what it did not write."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _MARK not in value:
        return {key: decode(item) for key, item in value.items()}
    kind, held = value[_MARK]
    if kind == "items":
        return {decode(key): decode(item) for key, item in held}
    return float(held) if kind == "float" else bytes.fromhex(held)
