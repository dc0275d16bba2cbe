"""`${oc.env:NAME}` belongs to the job: what reads the environment is never written down resolved.

The job's own filling-in knows plain text with `${oc.env:NAME}` or `${oc.env:NAME,default}` in it and nothing else, so
that it needs neither OmegaConf nor slurmopt in the job's Python.
"""

from __future__ import annotations

import re
from typing import Any

from omegaconf import DictConfig
from omegaconf.base import Container

from slurmopt.config.composition.error_messages import translate
from slurmopt.config.composition.resolved import environment_reads, resolved
from slurmopt.errors import ConfigError

DEFERRED = re.compile(r"\$\{oc\.env:([A-Za-z_][A-Za-z0-9_]*)(?:,([^{}]*))?\}")
"""One deferred piece: the variable's name, and the default where there is one."""


def _as_text(name: str, *default: Any) -> str:
    return f"${{oc.env:{name},{default[0]}}}" if default else f"${{oc.env:{name}}}"


def deferred(parent: Container, key: str | int, full_key: str) -> Any:
    """The value of `key`, resolved but for `${oc.env:…}`, which stays as text for the job to fill in."""
    with environment_reads(_as_text) as reads:
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
    return resolved(config, leave_out, translate)
