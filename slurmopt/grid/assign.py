"""Sets a value on a composed config as Hydra applies an override: with the same merges and the same errors."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from slurmopt.errors import ConfigError


def assign(config: DictConfig, key: str, value: Any, prefix: str) -> None:
    """Applies `key=value`, `+key=value` or `++key=value`. Raises ConfigError where `+` finds the key, else what
    OmegaConf raises."""
    adds = prefix == "+" and not isinstance(value, (dict, list))
    if adds and OmegaConf.select(config, key, throw_on_missing=False) is not None:
        raise ConfigError("is there already; leave out the +, or write ++ to add or change it", key)
    OmegaConf.update(config, key, value, merge=True, force_add=prefix != "")
