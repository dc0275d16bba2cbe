"""Composes several configs in one Hydra session: one per combination of config-group choices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hydra._internal.hydra import Hydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from slurmopt.config.composition.compose import PRIMARY, compose_errors, compose_with, hydra_session
from slurmopt.sweeps.definition.config_loader import Loader


class Composer:
    """Parses and composes overrides over the launch's search path. Raises ConfigError for whatever Hydra refuses."""

    def __init__(self, hydra: Hydra, overrides: list[str], config_dir: str | None) -> None:
        self._hydra, self._overrides, self._config_dir = hydra, overrides, config_dir
        self._loader = Loader(hydra.config_loader)
        hydra.config_loader = self._loader

    def parse(self, overrides: list[str]) -> list[Override]:
        """The parsed overrides, in order."""
        with compose_errors(self._config_dir):
            return self._loader.parsed(overrides)

    def compose(self, overrides: list[str]) -> DictConfig:
        """The composed config, unresolved."""
        with compose_errors(self._config_dir):
            return compose_with(self._hydra, overrides)

    def is_group(self, key: str) -> bool:
        """Whether `key` is a config group, so that `key=value` chooses a config."""
        with compose_errors(self._config_dir):
            return self._loader.searched(PRIMARY, self._overrides).group_exists(key)

    def options(self, group: str) -> list[str]:
        """The configs of a group."""
        with compose_errors(self._config_dir):
            return self._loader.searched(PRIMARY, self._overrides).get_group_options(group, ObjectType.CONFIG)


@contextlib.contextmanager
def composer(overrides: list[str], config_dir: str | None) -> Iterator[Composer]:
    """A Composer, valid while its Hydra session is open."""
    with hydra_session(config_dir) as hydra:
        yield Composer(hydra, overrides, config_dir)
