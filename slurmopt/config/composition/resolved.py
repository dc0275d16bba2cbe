"""Converts a composed config to plain containers, resolved except for `${oc.env:…}`.

It requires only OmegaConf, so the job computes the config of a point in the same way as the launch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.base import Container, Node
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers import oc

from slurmopt.errors import ConfigError
from slurmopt.run_folder.variables import escaped

Explain = Callable[[OmegaConfBaseException], ConfigError]
"""Converts an error of OmegaConf to a ConfigError with a message of one line."""


class EnvironmentReads:
    """The number of environment variables read by interpolations."""

    def __init__(self) -> None:
        self.count = 0


@contextlib.contextmanager
def environment_reads(answer: Callable[..., Any]) -> Iterator[EnvironmentReads]:
    reads = EnvironmentReads()

    def resolver(*arguments: Any) -> Any:
        reads.count += 1
        return answer(*arguments)

    OmegaConf.register_new_resolver("oc.env", resolver, replace=True)
    try:
        yield reads
    finally:
        OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)


def resolved(config: DictConfig, leave_out: str, explain: Explain) -> dict[str, Any]:
    """Returns the config as plain containers, without the root key `leave_out`.

    Raises ConfigError with the first key that cannot be resolved.
    """
    with environment_reads(oc.env) as reads:
        return {str(key): _stored_item(config, key, reads, explain) for key in config if key != leave_out}


def _stored(node: Any, reads: EnvironmentReads, explain: Explain) -> Any:
    if isinstance(node, DictConfig):
        return {key: _stored_item(node, key, reads, explain) for key in node}
    if isinstance(node, ListConfig):
        return [_stored_item(node, index, reads, explain) for index in range(len(node))]
    return node


def _stored_item(parent: DictConfig | ListConfig, key: Any, reads: EnvironmentReads, explain: Explain) -> Any:
    node = parent._get_node(key)
    assert isinstance(node, Node)
    if not node._is_interpolation():
        if node._is_missing():
            raise ConfigError("has no value (???)", node._get_full_key(None))
        return _stored(node, reads, explain) if isinstance(node, Container) and not node._is_none() else node._value()
    return _resolved_unless_read(parent, key, node, reads, explain)


def _resolved_unless_read(parent: Any, key: Any, node: Node, reads: EnvironmentReads, explain: Explain) -> Any:
    before = reads.count
    try:
        value = parent[key]
        plain = OmegaConf.to_container(value, resolve=True) if isinstance(value, Container) else value
    except OmegaConfBaseException as error:
        if reads.count == before:
            raise explain(error) from error
    return as_text(plain) if reads.count == before else node._value()


def as_text(plain: Any) -> Any:
    """The value so that it is the same when the stored config is resolved: a `${` in it is text."""
    if isinstance(plain, str):
        return escaped(plain) if "${" in plain else plain
    if isinstance(plain, dict):
        return {key: as_text(item) for key, item in plain.items()}
    return [as_text(item) for item in plain] if isinstance(plain, list) else plain
