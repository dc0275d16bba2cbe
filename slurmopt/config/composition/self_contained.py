"""A part of a larger config as plain containers that need the larger one no more.

A key may reach the environment through a key elsewhere in the config. What is stored then is the text that the other
key holds, so that the variable's value is not written down and the part can be read alone.
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
    """`part`, a node of a composed config, resolved but for what reads the environment; without its key `leave_out`.

    Raises ConfigError naming the first key that cannot be resolved, or that hides an environment variable from the job.
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
    """Whether `text` gives the same without the rest of the config."""
    try:
        return str(OmegaConf.create({"text": text}).text) == str(value)
    except OmegaConfBaseException:
        return False


def _as_text(parent: Any, key: Any, path: tuple[str, ...], value: Any) -> Any:
    """With `${oc.env:NAME}` in place of each variable's value. Where that is no text (a number, another resolver's
    result), what only the script needs, which holds it anyway, is stored with its value."""
    try:
        return deferred(parent, key, ".".join(path))
    except (ConfigError, OmegaConfBaseException) as error:
        if any(path[:length] in DEFERRED_FIELDS for length in range(2, len(path) + 1)):
            raise error if isinstance(error, ConfigError) else translate(error) from error
        return value
