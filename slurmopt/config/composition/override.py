"""Applies overrides to a stored config, with the same grammar, checks and errors as a launch."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from slurmopt.config.check import did_you_mean
from slurmopt.config.composition.compose import careful_yaml, split_command
from slurmopt.config.composition.deferred import storable
from slurmopt.config.composition.error_messages import translate
from slurmopt.config.composition.settings import settings
from slurmopt.config.schema import GROUPS
from slurmopt.errors import ConfigError, one_line

_LONGEST = 80

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings


def parse(words: list[str]) -> list[Override]:
    """Parses overrides. Raises ConfigError for invalid ones, for sweeps, and for choices of config groups, which
    require a new launch."""
    overrides = [parsed(word) for word in words]
    for override in overrides:
        if not override.key_or_group:
            raise ConfigError(f"{override.input_line!r} is not an override; valid: key=value")
        if override.is_sweep_override():
            raise ConfigError(f"{override.input_line!r} has several values; give one", override.key_or_group)
        if "@" in (override.input_line or "").split("=")[0] or _names_a_group(override):
            raise ConfigError(
                f"{override.input_line!r} picks a config, which only a launch can; "
                f"give single keys: {override.key_or_group}.KEY=VALUE",
                override.key_or_group,
            )
    return overrides


def parsed(word: str) -> Override:
    """One override, of whatever kind. Raises ConfigError for what is none."""
    try:
        with careful_yaml():
            return OverridesParser.create().parse_override(word)
    except HydraException as error:
        why = one_line(str(error).partition("\nSee https")[0].replace("\n", " "))
        raise ConfigError(f"{_shown(word)} is not an override: {why}") from error
    except RecursionError as error:
        raise ConfigError(f"{_shown(word)} is nested too deeply") from error


def _shown(word: str) -> str:
    return repr(word if len(word) <= _LONGEST else f"{word[:_LONGEST]}…")


def _names_a_group(override: Override) -> bool:
    group = override.key_or_group.split("/")[0]
    return group in (*GROUPS, "cluster", "experiment") and "." not in group and not isinstance(override.value(), dict)


def overridden(stored: dict[str, Any], overrides: list[Override]) -> tuple[dict[str, Any], dict[str, Any], Settings]:
    """Returns the stored config as plain containers, the same with the overrides, and the typed part of the latter.

    Interpolations that read the environment are not resolved. Raises ConfigError with the key.
    """
    config = _typed(stored)
    before = storable(config, leave_out="")
    OmegaConf.set_struct(config, True)
    for override in overrides:
        _refuse_unknown(config, override)
    try:
        ConfigLoaderImpl._apply_overrides_to_config(overrides, config)
    except (HydraException, OmegaConfBaseException) as error:
        raise translate(error) from error
    OmegaConf.set_struct(config, False)
    split_command(config)
    return before, storable(config, leave_out=""), settings(config)


def _refuse_unknown(config: DictConfig, override: Override) -> None:
    """Raises ConfigError for an unknown key outside the groups. Within them, OmegaConf checks the keys."""
    if override.is_add() or override.is_force_add():
        return
    node: Any = config
    for part in override.key_or_group.split("."):
        if not isinstance(node, DictConfig) or is_dataclass(OmegaConf.get_type(node)):
            return
        if part not in node:
            key = override.key_or_group
            raise ConfigError(f"no such key{did_you_mean(part, map(str, node))}; to add one write +{key}=…", key)
        node = node._get_node(part)


def _typed(stored: dict[str, Any]) -> DictConfig:
    try:
        config = OmegaConf.merge({name: OmegaConf.structured(group) for name, group in GROUPS.items()}, stored)
    except OmegaConfBaseException as error:
        raise translate(error) from error
    assert isinstance(config, DictConfig)
    return config
