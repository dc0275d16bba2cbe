"""`${oc.env:NAME}` belongs to the job: what reads the environment is never written down resolved.

The job's own filling-in knows plain text with `${oc.env:NAME}` or `${oc.env:NAME,default}` in it and nothing else, so
that it needs neither OmegaConf nor slurmopt in the job's Python.
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

from slurmopt.config.translate import translate
from slurmopt.errors import ConfigError

DEFERRED = re.compile(r"\$\{oc\.env:([A-Za-z_][A-Za-z0-9_]*)(?:,([^{}]*))?\}")
"""One deferred piece: the variable's name, and the default where there is one."""


class EnvironmentReads:
    """Counts how often a resolution asked for an environment variable."""

    def __init__(self) -> None:
        self.count = 0


@contextlib.contextmanager
def _reads(answer: Callable[..., Any]) -> Iterator[EnvironmentReads]:
    reads = EnvironmentReads()

    def resolver(*arguments: Any) -> Any:
        reads.count += 1
        return answer(*arguments)

    OmegaConf.register_new_resolver("oc.env", resolver, replace=True)
    try:
        yield reads
    finally:
        OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)


def _as_text(name: str, *default: Any) -> str:
    return f"${{oc.env:{name},{default[0]}}}" if default else f"${{oc.env:{name}}}"


def deferred(parent: Container, key: str | int, full_key: str) -> Any:
    """The value of `key`, resolved but for `${oc.env:…}`, which stays as text for the job to fill in."""
    with _reads(_as_text) as reads:
        value = parent[key]
    if reads.count and (not isinstance(value, str) or len(DEFERRED.findall(value)) != reads.count):
        raise ConfigError(
            "uses oc.env inside another resolver, which the job cannot do here; valid: plain text with ${oc.env:NAME}",
            full_key,
        )
    return value


def storable(config: DictConfig, leave_out: str) -> dict[str, Any]:
    """The config as plain containers, resolved but for whatever reads the environment; that stays an interpolation.

    The root key `leave_out` is no part of it.

    Raises ConfigError naming the first key that cannot be resolved.
    """
    with _reads(oc.env) as reads:
        return {str(key): _stored_item(config, key, reads) for key in config if key != leave_out}


def _stored(node: Any, reads: EnvironmentReads) -> Any:
    if isinstance(node, DictConfig):
        return {key: _stored_item(node, key, reads) for key in node}
    if isinstance(node, ListConfig):
        return [_stored_item(node, index, reads) for index in range(len(node))]
    return node


def _stored_item(parent: DictConfig | ListConfig, key: Any, reads: EnvironmentReads) -> Any:
    node = parent._get_node(key)
    assert isinstance(node, Node)
    if not node._is_interpolation():
        if node._is_missing():
            raise ConfigError("has no value (???)", node._get_full_key(None))
        return _stored(node, reads) if isinstance(node, Container) and not node._is_none() else node._value()
    return _resolved_unless_read(parent, key, node, reads)


def _resolved_unless_read(parent: Any, key: Any, node: Node, reads: EnvironmentReads) -> Any:
    before = reads.count
    try:
        value = parent[key]
        plain = OmegaConf.to_container(value, resolve=True) if isinstance(value, Container) else value
    except OmegaConfBaseException as error:
        if reads.count == before:
            raise translate(error) from error
    return plain if reads.count == before else node._value()
