"""Reads the `sweep` group; texts such as `${lr}-${seed}` stay unresolved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from slurmopt.config.composition.settings import check_groups, typed_group
from slurmopt.config.sweep import Sweep
from slurmopt.errors import ConfigError

_RAW = ("skip", "folder")


@dataclass(frozen=True)
class Options:
    """The options of `sweep` that concern the points."""

    sweep: Sweep
    skip: str | None
    folder: str | None
    imports: tuple[str, ...]


def options(config: DictConfig) -> Options:
    """Takes the raw texts out of `config`, because each point resolves them itself, and converts the rest."""
    check_groups(config)
    raw = {name: config.sweep._get_node(name)._value() for name in _RAW}
    for name in _RAW:
        config.sweep[name] = None
    for name, text in raw.items():
        if text is not None and not isinstance(text, str):
            raise ConfigError(f"{text!r} is not text", f"sweep.{name}")
    imports = typed_group(config, "launch").imports
    return Options(typed_group(config, "sweep"), raw["skip"], raw["folder"], tuple(imports))


def sweeper_params(config: DictConfig) -> dict[str, Any]:
    """`hydra.sweeper.params`: more overrides, swept or not."""
    sweeper = config.hydra.get("sweeper")
    params = sweeper.get("params") if isinstance(sweeper, DictConfig) else None
    container = OmegaConf.to_container(params, resolve=True) if isinstance(params, DictConfig) else {}
    return {str(key): value for key, value in container.items()} if isinstance(container, dict) else {}
