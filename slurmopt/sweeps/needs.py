"""All points of a sweep share one script: what an axis may change, and what it may not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from slurmopt.config.schema import GROUPS
from slurmopt.errors import ConfigError
from slurmopt.grid.axes import Column
from slurmopt.grid.resolvers import hydra_answers
from slurmopt.sweeps.values import node_at, shown

_FREE = ("task", "checkpoint", "environment.variables")
"""What may differ between points."""
_FIXED = ("task.per", "task.python", "environment", *(name for name in GROUPS if name not in ("task", "checkpoint", "environment")))
_WAY_OUT = "the points of a sweep share one array job and so one set of needs; launch those apart"


def refuse_needs(column: Column) -> None:
    """ConfigError for a swept key that the script depends on."""
    root, _, rest = column.key.partition(".")
    if column.group or root not in GROUPS:
        return
    free = any(column.key == key or column.key.startswith(f"{key}.") for key in _FREE)
    if not free or column.key in _FIXED or (root == "task" and not rest):
        free_keys = "your own keys, task, checkpoint, environment.variables"
        raise ConfigError(f"cannot be swept: {_WAY_OUT}; what can be: {free_keys}", column.key)


def needs(config: DictConfig) -> dict[str, Any]:
    """Dotted key → value of all that the script is made from, resolved."""
    found: dict[str, Any] = {}
    for key in _FIXED:
        found.update(_leaves(config, key))
    return found


def _leaves(config: DictConfig, key: str) -> Iterator[tuple[str, Any]]:
    if key == "environment.variables":
        return
    node: Any = node_at(config, key)
    if isinstance(node, DictConfig) and not node._is_none() and not node._is_interpolation():
        for name in node:
            yield from _leaves(config, f"{key}.{name}")
        return
    yield key, _plain(OmegaConf.select(config, key))


def _plain(value: Any) -> Any:
    return OmegaConf.to_container(value, resolve=True) if isinstance(value, (DictConfig, ListConfig)) else value


def moving(config: DictConfig) -> list[str]:
    """The keys the script is made from that are interpolations, or hold some."""
    return [key for name in _FIXED for key in _moving(config, name)]


def _moving(config: DictConfig, key: str) -> Iterator[str]:
    if key == "environment.variables":
        return
    node: Any = node_at(config, key)
    if node is None:
        return
    if node._is_interpolation() or isinstance(node, ListConfig):
        if node._is_interpolation() or any(part._is_interpolation() for part in node._iter_ex(resolve=False) if hasattr(part, "_is_interpolation")):
            yield key
    elif isinstance(node, DictConfig) and not node._is_none() and not node._is_missing():
        for name in node:
            yield from _moving(config, f"{key}.{name}")


def refuse_difference(before: dict[str, Any], after: dict[str, Any], axis: str, value: Any) -> None:
    """ConfigError where a value of an axis changes what the script is made from."""
    for key, one in before.items():
        if (other := after.get(key)) != one:
            raise ConfigError(f"{shown(value)} changes {key} (from {one!r} to {other!r}); {_WAY_OUT}", axis)
