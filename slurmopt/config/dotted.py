"""Values of a plain config by their dotted keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def value_of(config: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key; None where it is not there."""
    *groups, name = key.split(".")
    return _group(config, groups).get(name)


def has(config: Mapping[str, Any], key: str) -> bool:
    """Whether the config has the dotted key."""
    *groups, name = key.split(".")
    return name in _group(config, groups)


def _group(config: Mapping[str, Any], names: list[str]) -> Mapping[str, Any]:
    for name in names:
        config = value if isinstance(value := config.get(name), Mapping) else {}
    return config
