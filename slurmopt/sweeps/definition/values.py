"""Checks the values of an axis: sets each once on the typed config, so that misspelt keys and wrong types are found
before anything starts."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hydra.errors import HydraException
from omegaconf import AnyNode, DictConfig, ListConfig, OmegaConf
from omegaconf._utils import split_key
from omegaconf.base import Container, Node
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from slurmopt.config.check import did_you_mean
from slurmopt.config.composition.compose import split_command
from slurmopt.config.composition.error_messages import translate
from slurmopt.config.composition.settings import typed_group
from slurmopt.config.schema import GROUPS
from slurmopt.errors import ConfigError, one_line
from slurmopt.grid.assign import assign
from slurmopt.grid.axes import Column, Interval
from slurmopt.grid.override_syntax import override_value

_SHOWN = 60


def check_column(column: Column, config: DictConfig) -> Column:
    """The column with its values as the typed config converts them. Leaves the first value set in `config`.

    Raises ConfigError that names axis and value.
    """
    previous = _before(column, config)
    first = _set(config, column, column.first, column.prefix)
    if isinstance(column.values, Interval):
        _set(config, column, column.values.end, _again(column))
        _set(config, column, column.first, _again(column))
        return column
    if _takes_anything(config, column):
        return column
    values = [first, *(_converted(column, value, config, previous) for value in column.values[1:])]
    if not isinstance(first, dict):
        _set(config, column, first, _again(column))
    unchanged = all(type(new) is type(old) and new == old for new, old in zip(values, column.values, strict=True))
    return column if unchanged else replace(column, values=values)


def check_on(column: Column, config: DictConfig) -> None:
    """Sets the first value on another composition, in which the key may be missing. Mappings are all set, because they
    merge."""
    if not isinstance(column.values, (Interval, range)):
        previous = _before(column, config)
        for value in column.values[1:]:
            if isinstance(value, dict):
                _set(_copy(previous), column, value, column.prefix)
    _set(config, column, column.first, column.prefix)


def _before(column: Column, config: DictConfig) -> DictConfig:
    """A copy of what a mapping is merged into: of the whole config for slurmopt's groups, which are resolved for the
    check."""
    root = split_key(column.key)[0]
    return copy.deepcopy(config) if root in GROUPS else _copy(OmegaConf.masked_copy(config, root))


def _again(column: Column) -> str:
    """The prefix for a key that has been set before."""
    return "++" if column.prefix else ""


def _takes_anything(config: DictConfig, column: Column) -> bool:
    """Whether the key is untyped, so that every plain value is valid."""
    if split_key(column.key)[0] in GROUPS or not isinstance(node_at(config, column.key), AnyNode):
        return False
    return not isinstance(column.values, list) or all(map(_plain, column.values))


def _plain(value: Any) -> bool:
    if isinstance(value, str):
        return "${" not in value and value != "???"
    return value is None or isinstance(value, (bool, int, float))


def _converted(column: Column, value: Any, config: DictConfig, previous: DictConfig) -> Any:
    if isinstance(value, dict) or isinstance(node_at(config, column.key), DictConfig):
        return _set(_copy(previous), column, value, column.prefix)
    return _set(config, column, value, _again(column))


def _copy(config: DictConfig) -> DictConfig:
    copied = copy.deepcopy(config)
    OmegaConf.set_struct(copied, True)
    return copied


def _set(config: DictConfig, column: Column, value: Any, prefix: str) -> Any:
    """Sets the value and returns it as the typed config converts it."""
    try:
        assign(config, column.key, value, prefix)
        split_command(config)
    except ConfigError as error:
        raise _named(column, value, error) from error
    except (ConfigAttributeError, ConfigKeyError) as error:
        raise _unknown(column, config, error) from error
    except (OmegaConfBaseException, HydraException) as error:
        raise _named(column, value, translate(error)) from error
    if isinstance(value, str) and value == "???":
        raise _named(column, value, ConfigError("has no value (???)", column.key))
    root = split_key(column.key)[0]
    if root in GROUPS:
        try:
            typed_group(config, root)
        except ConfigError as error:
            raise _named(column, value, error) from error
    return _as_held(node_at(config, column.key), value)


def node_at(config: DictConfig, key: str) -> Node | None:
    """The node at a dotted key, unresolved; None where there is none."""
    node: Any = config
    for part in split_key(key):
        if not isinstance(node, (DictConfig, ListConfig)) or node._is_none() or node._is_missing():
            return None
        place: Any = int(part) if isinstance(node, ListConfig) else part
        node = node._get_node(place)
    return node if isinstance(node, Node) else None


def _as_held(node: Any, value: Any) -> Any:
    """`value` with the types of the node that it became; of a mapping only its own keys."""
    if isinstance(value, dict) and isinstance(node, DictConfig):
        return {key: _as_held(node._get_node(key), item) for key, item in value.items()}
    if isinstance(node, ListConfig):
        return OmegaConf.to_container(node, resolve=False)
    return node._value() if isinstance(node, Node) and not isinstance(node, Container) else value


def _named(column: Column, value: Any, error: ConfigError) -> ConfigError:
    """The error, with the axis and the value that caused it."""
    message = str(error)
    message = message.removeprefix(f"{column.key}: ")
    return ConfigError(f"{shown(value)}: {message}", column.key)


def shown(value: Any) -> str:
    """A value for messages: on one line, cut to 60 characters."""
    text = one_line(override_value(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def _unknown(column: Column, config: DictConfig, error: Exception) -> ConfigError:
    """The error for a key that does not exist, with the nearest existing key."""
    parts = split_key(column.key)
    translated = translate(error)
    if "unknown key" in str(translated):
        return translated
    keys = list(_keys_beside(config, parts))
    return ConfigError(f"no such key{did_you_mean(column.key, keys)}; to add one write +{column.key}=…", column.key)


def _keys_beside(config: DictConfig, parts: list[str]) -> Iterator[str]:
    """The keys of the last mapping on the path that exists."""
    node: Any = config
    path: list[str] = []
    for part in parts:
        if not isinstance(node, DictConfig) or node._is_none() or node._is_missing() or part not in node:
            break
        node = node._get_node(part)
        path.append(part)
    if isinstance(node, DictConfig):
        yield from (".".join([*path, str(key)]) for key in node if key != "hydra")
