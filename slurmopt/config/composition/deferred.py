"""Values with `${oc.env:NAME}`: they are resolved in the job, and never stored resolved.

The job replaces only `${oc.env:NAME}` and `${oc.env:NAME,default}` in plain text, so its Python needs neither OmegaConf
nor slurmopt.
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
"""Matches one `${oc.env:…}`. Groups: the name of the variable, and the default if there is one."""


def variable_as_text(name: str, *default: Any) -> str:
    """The text of `${oc.env:NAME}` itself, in place of what the variable has."""
    return f"${{oc.env:{name},{default[0]}}}" if default else f"${{oc.env:{name}}}"


def deferred(parent: Container, key: str | int, full_key: str) -> Any:
    """Returns the value of `key`, resolved except for `${oc.env:…}`, which the job resolves.

    Raises ConfigError with `full_key` if `oc.env` is used within another resolver."""
    with environment_reads(variable_as_text) as reads:
        value = parent[key]
    if reads.count and (not isinstance(value, str) or len(DEFERRED.findall(value)) != reads.count):
        raise ConfigError(
            "uses oc.env inside another resolver, which the job cannot do here; valid: plain text with ${oc.env:NAME}",
            full_key,
        )
    return value


def storable(config: DictConfig, leave_out: str) -> dict[str, Any]:
    """Returns the config as plain containers, without the root key `leave_out`. Interpolations are resolved, except for
    those that read the environment.

    Raises ConfigError with the first key that cannot be resolved.
    """
    return resolved(config, leave_out, translate)
