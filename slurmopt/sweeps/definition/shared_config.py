"""Checks that the axes of a sweep change nothing that its points share: all of them run the same job script."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from slurmopt.config.composition.deferred import variable_as_text
from slurmopt.config.composition.resolved import environment_reads
from slurmopt.config.composition.settings import is_deferred
from slurmopt.config.schema import GROUPS
from slurmopt.errors import ConfigError
from slurmopt.grid.axes import Column, Interval
from slurmopt.sweeps.definition.values import node_at, shown

_FREE = ("task", "checkpoint", "environment.variables")
"""Keys of slurmopt's groups that may differ between points."""
_FIXED = (
    "task.per",
    "task.distributed",
    "task.python",
    "environment",
    *(name for name in GROUPS if name not in ("task", "checkpoint", "environment")),
)
_TRACER = "slurmopt.swept"
_WAY_OUT = "the points of a sweep share one array job and so one set of needs; launch those apart"


def refuse_shared_key(column: Column) -> None:
    """ConfigError for a swept key that the script is made from."""
    root, _, rest = column.key.partition(".")
    if column.group or root not in GROUPS:
        return
    free = any(column.key == key or column.key.startswith(f"{key}.") for key in _FREE)
    if not free or column.key in _FIXED or (root == "task" and not rest):
        free_keys = "your own keys, task, checkpoint, environment.variables"
        raise ConfigError(f"cannot be swept: {_WAY_OUT}; what can be: {free_keys}", column.key)


def shared_values(config: DictConfig) -> dict[str, Any]:
    """Dotted key → resolved value, for all keys that the script is made from."""
    values: dict[str, Any] = {}
    for key in _FIXED:
        values.update(_leaves(config, key))
    return values


def _leaves(config: DictConfig, key: str) -> Iterator[tuple[str, Any]]:
    if key == "environment.variables":
        return
    node: Any = node_at(config, key)
    if isinstance(node, DictConfig) and not node._is_none() and not node._is_interpolation():
        for name in map(str, node):
            yield from _leaves(config, f"{key}.{name}")
        return
    with environment_reads(variable_as_text) if is_deferred(key) else contextlib.nullcontext():
        value = _plain(OmegaConf.select(config, key))
    yield key, value


def _plain(value: Any) -> Any:
    return OmegaConf.to_container(value, resolve=True) if isinstance(value, (DictConfig, ListConfig)) else value


def has_interpolations(config: DictConfig) -> bool:
    """Whether a key that the script is made from is an interpolation, so that an axis could change it."""
    return any(_has_interpolation(config, key) for key in _FIXED)


def _has_interpolation(config: DictConfig, key: str) -> bool:
    node: Any = node_at(config, key)
    if node is None or key == "environment.variables":
        return False
    if node._is_interpolation():
        return True
    if isinstance(node, ListConfig) and not (node._is_none() or node._is_missing()):
        parts: list[Any] = [node._get_node(index) for index in range(len(node))]
        return any(part._is_interpolation() for part in parts)
    if isinstance(node, DictConfig) and not (node._is_none() or node._is_missing()):
        return any(_has_interpolation(config, f"{key}.{name}") for name in map(str, node))
    return False


def refuse_influence(config: DictConfig, column: Column, first: dict[str, Any]) -> None:
    """ConfigError where another value of the column changes `first`, the shared values of the first point. `config`: of
    the first point."""
    if isinstance(column.values, Interval):
        if _reads(config, column):
            raise ConfigError(f"is read by what all points share; {_WAY_OUT}", column.key)
    elif _reads(config, column):
        changed = copy.deepcopy(config)
        for value in column.values:
            OmegaConf.update(changed, column.key, value, merge=True, force_add=True)
            refuse_difference(first, shared_values(changed), column.key, value)


def _reads(config: DictConfig, column: Column) -> bool:
    """Whether a key that the script is made from reads the swept key."""
    reads: list[str] = []

    def answer(*_: Any) -> Any:
        reads.append(column.key)
        return column.first

    OmegaConf.register_new_resolver(_TRACER, answer, replace=True)
    try:
        traced = copy.deepcopy(config)
        OmegaConf.update(traced, column.key, f"${{{_TRACER}:}}", merge=False, force_add=True)
        shared_values(traced)
    finally:
        OmegaConf.clear_resolver(_TRACER)
    return bool(reads)


def refuse_difference(before: dict[str, Any], after: dict[str, Any], axis: str, value: Any) -> None:
    """ConfigError where the shared values differ: `value` of `axis` has changed them."""
    for key, old in before.items():
        if (new := after.get(key)) != old:
            by = "" if value is None else f"{shown(value)} "
            raise ConfigError(f"{by}changes {key} (from {old!r} to {new!r}); {_WAY_OUT}", axis)
