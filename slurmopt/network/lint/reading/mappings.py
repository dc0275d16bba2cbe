"""Variables that are known by name and value: those of a process, and of a composed config."""

from __future__ import annotations

from collections.abc import Mapping

from slurmopt.network.lint.names import NAME
from slurmopt.network.lint.setting import Setting

ENVIRONMENT, CONFIG = "environment", "config"


def of_environment(variables: Mapping[str, str]) -> list[Setting]:
    """The variables of a process."""
    return [Setting(name, value, ENVIRONMENT) for name, value in sorted(variables.items()) if NAME.fullmatch(name)]


def of_config(variables: Mapping[str, object]) -> list[Setting]:
    """The variables in a group of a composed config, such as `network.variables`."""
    return [
        Setting(name, None if "${" in str(value) else str(value), CONFIG)
        for name, value in variables.items()
        if value is not None and NAME.fullmatch(name)
    ]
