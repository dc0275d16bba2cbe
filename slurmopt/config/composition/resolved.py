"""Converts a composed config to plain containers, resolved except for `${oc.env:…}`.

It requires only OmegaConf, so the job computes the config of a point in the same way as the launch.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.base import Container, Node
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers import oc

from slurmopt.errors import ConfigError

Explain = Callable[[OmegaConfBaseException], ConfigError]
"""Converts an error of OmegaConf to a ConfigError with a message of one line."""


_OPENING = re.compile(r"(\\*)\$\{")


def literal(text: str) -> str:
    """`text` as a config must hold it so that its `${` is no interpolation."""
    return _OPENING.sub(r"\1\1\\${", text)


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
    return _literals(plain) if reads.count == before else node._value()


def _literals(value: Any) -> Any:
    """A resolved value with each text as `literal` writes it: the job resolves the stored config once more."""
    if isinstance(value, dict):
        return {key: _literals(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_literals(item) for item in value]
    return literal(value) if isinstance(value, str) and "${" in value else value
