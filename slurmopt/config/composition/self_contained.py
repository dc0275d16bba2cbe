"""Converts a part of a config to plain containers that do not refer to the rest of the config.

A key may read the environment through a key in another part of the config. The text of that other key is then stored,
so that the value of the variable is not written and the part can be resolved alone.
"""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.base import Container, Node
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers import oc

from slurmopt.config.composition.deferred import deferred
from slurmopt.config.composition.error_messages import translate
from slurmopt.config.composition.resolved import environment_reads
from slurmopt.config.composition.settings import DEFERRED_FIELDS
from slurmopt.errors import ConfigError


def self_contained(part: DictConfig, leave_out: str) -> dict[str, Any]:
    """Returns `part`, a node of a composed config, as plain containers without its key `leave_out`. Interpolations are
    resolved, except for those that read the environment.

    Raises ConfigError with the first key that cannot be resolved, or that uses an environment variable in a way that
    the job cannot resolve.
    """
    return {str(key): _item(part, key, (str(key),)) for key in part if key != leave_out}


def _items(node: Any, path: tuple[str, ...]) -> Any:
    if isinstance(node, DictConfig):
        return {key: _item(node, key, (*path, str(key))) for key in node}
    if isinstance(node, ListConfig):
        return [_item(node, index, (*path, str(index))) for index in range(len(node))]
    return node


def _item(parent: Any, key: Any, path: tuple[str, ...]) -> Any:
    node = parent._get_node(key)
    assert isinstance(node, Node)
    if not node._is_interpolation():
        if node._is_missing():
            raise ConfigError("has no value (???)", ".".join(path))
        return _items(node, path) if isinstance(node, Container) and not node._is_none() else node._value()
    with environment_reads(oc.env) as reads:
        try:
            value = parent[key]
            plain = OmegaConf.to_container(value, resolve=True) if isinstance(value, Container) else value
        except OmegaConfBaseException as error:
            raise translate(error) from error
    if not reads.count:
        return plain
    if isinstance(value, Container):
        return _items(value, path)
    return node._value() if _stands_alone(node._value(), value) else _as_text(parent, key, path, value)


def _stands_alone(text: str, value: Any) -> bool:
    """Whether `text` resolves to `value` without the rest of the config."""
    try:
        return str(OmegaConf.create({"text": text}).text) == str(value)
    except OmegaConfBaseException:
        return False


def _as_text(parent: Any, key: Any, path: tuple[str, ...], value: Any) -> Any:
    """Returns the value with `${oc.env:NAME}` in place of the value of each variable.

    If that is not possible (a number, the result of another resolver), returns the resolved value for fields that are
    only used in the script, which contains the value in any case; raises ConfigError for the fields that are resolved
    in the job."""
    try:
        return deferred(parent, key, ".".join(path))
    except (ConfigError, OmegaConfBaseException) as error:
        if any(path[:length] in DEFERRED_FIELDS for length in range(2, len(path) + 1)):
            raise error if isinstance(error, ConfigError) else translate(error) from error
        return value
