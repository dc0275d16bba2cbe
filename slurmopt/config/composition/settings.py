"""Validates the typed part of a composed config. Hydra does not check the keys of `+` and `++` overrides."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from slurmopt.config.checkpoint import TIERS
from slurmopt.config.composition import stored_yaml
from slurmopt.config.composition.deferred import deferred
from slurmopt.config.composition.error_messages import translate, unknown_key
from slurmopt.config.metrics import SINKS
from slurmopt.config.schema import GROUPS, Settings
from slurmopt.errors import ConfigError, one_line, why_failed

DEFERRED_FIELDS = {
    ("task", "command"),
    ("environment", "modules"),
    ("environment", "setup"),
    ("environment", "variables"),
    ("network", "variables"),
    ("notify", "command"),
    ("notify", "webhook"),
    ("notify", "email", "token"),
    ("notify", "email", "url"),
    *(("checkpoint", name, key) for name, tier in TIERS.items() for key in tier.deferred),
    *(("metrics", name, key) for name, sink in SINKS.items() for key in sink.deferred),
    ("storage", "stage"),
    ("sweep", "then"),
}
"""The fields in which `${oc.env:NAME}` is resolved in the job. In all others it is resolved at launch, because the
script contains the value."""


def is_deferred(key: str) -> bool:
    """Whether the field `key`, or a group around it, is resolved in the job."""
    path = tuple(key.split("."))
    return any(path[: len(field)] == field for field in DEFERRED_FIELDS)


def settings(config: DictConfig) -> Settings:
    """Returns all groups as dataclasses, resolved and checked. Raises ConfigError with the key."""
    check_groups(config)
    return Settings(**{group: typed_group(config, group) for group in GROUPS})


def typed_group(config: DictConfig, group: str) -> Any:
    """Returns one group as its dataclass. Raises ConfigError with the key."""
    try:
        return _instance(config[group], GROUPS[group], (group,))
    except OmegaConfBaseException as error:
        raise translate(error) from error


def check_groups(config: DictConfig) -> None:
    """Raises ConfigError if a group is missing, is not a mapping, or has an unknown key."""
    for group, kind in GROUPS.items():
        node = config.get(group)
        if not isinstance(node, DictConfig):
            raise ConfigError(f"is a group of slurmopt's; nest your own value elsewhere, such as my.{group}", group)
        _check_keys(node, kind, group)


def _check_keys(node: DictConfig, kind: Any, path: str) -> None:
    valid = {item.name for item in fields(kind)}
    for name in map(str, node):
        if name not in valid:
            raise ConfigError(unknown_key(kind, path, name), f"{path}.{name}")
        child = node._get_node(name)
        if isinstance(child, DictConfig) and is_dataclass(inner := OmegaConf.get_type(child)):
            _check_keys(child, inner, f"{path}.{name}")


def _instance(node: DictConfig, kind: Any, path: tuple[str, ...]) -> Any:
    return kind(**{str(name): _value(node, str(name), (*path, str(name))) for name in node})


def _value(node: DictConfig, name: str, path: tuple[str, ...]) -> Any:
    if path in DEFERRED_FIELDS:
        found = _deferred_items(deferred(node, name, key := ".".join(path)), key)
        if path == ("storage", "stage") and isinstance(found, dict):  # the values are mappings, too
            return {each: _deferred_items(entry, f"{key}.{each}") for each, entry in found.items()}
        return found
    value = node[name]
    if isinstance(value, DictConfig) and is_dataclass(inner := OmegaConf.get_type(value)):
        return _instance(value, inner, path)
    return OmegaConf.to_object(value) if isinstance(value, (DictConfig, ListConfig)) else value


def _deferred_items(node: Any, full_key: str) -> Any:
    if isinstance(node, DictConfig):
        return {key: deferred(node, key, f"{full_key}.{key}") for key in map(str, node)}
    if isinstance(node, ListConfig):
        return [deferred(node, index, f"{full_key}[{index}]") for index in range(len(node))]
    return node


def load(path: Path) -> tuple[dict[str, Any], Settings]:
    """Reads a stored config of this user. Returns it as plain containers and as its typed part. Raises ConfigError if
    it cannot be read or is invalid."""
    try:
        held = stored_yaml.load(path, mine=True)
        if held is not None and not isinstance(held, dict):
            raise ConfigError(f"{path} is not a config")
        config = OmegaConf.create(held or {})
        typed = OmegaConf.create({name: OmegaConf.structured(group) for name, group in GROUPS.items()})
        merged = OmegaConf.merge(typed, config)
    except (OSError, YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {one_line(why_failed(error))}") from error
    except OmegaConfBaseException as error:
        raise translate(error) from error
    assert isinstance(merged, DictConfig)
    stored = OmegaConf.to_container(config, resolve=False)
    assert isinstance(stored, dict)
    return {str(key): value for key, value in stored.items()}, settings(merged)
