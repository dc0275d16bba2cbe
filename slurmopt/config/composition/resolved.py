"""A composed config as plain containers, resolved but for `${oc.env:…}`: the same at a launch and in the job.

OmegaConf alone is needed, so that the job computes the config of a point as the launch would have.
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

Explain = Callable[[OmegaConfBaseException], ConfigError]
"""Says in one line what OmegaConf could not resolve."""


class EnvironmentReads:
    """Counts how often a resolution asked for an environment variable."""

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
    """The config as plain containers; the root key `leave_out` is no part of it.

    Raises ConfigError naming the first key that cannot be resolved.
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
    return plain if reads.count == before else node._value()
