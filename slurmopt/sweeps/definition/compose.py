"""Several configs composed in one Hydra session: one per combination of config-group choices."""

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
    """Hydra's grammar and composition over the launch's search path. Raises ConfigError for all that Hydra refuses."""

    def __init__(self, hydra: Hydra, words: list[str], config_dir: str | None) -> None:
        self._hydra, self._words, self._config_dir = hydra, words, config_dir
        self._loader = Loader(hydra.config_loader)
        hydra.config_loader = self._loader

    def parse(self, words: list[str]) -> list[Override]:
        """The overrides, in their order."""
        with compose_errors(self._config_dir):
            return self._loader.parsed(words)

    def compose(self, words: list[str]) -> DictConfig:
        """The composed config, nothing resolved."""
        with compose_errors(self._config_dir):
            return compose_with(self._hydra, words)

    def is_group(self, key: str) -> bool:
        """Whether Hydra takes `key=value` for a choice of a config."""
        with compose_errors(self._config_dir):
            return self._loader.searched(PRIMARY, self._words).group_exists(key)

    def options(self, group: str) -> list[str]:
        """The configs of a group."""
        with compose_errors(self._config_dir):
            return self._loader.searched(PRIMARY, self._words).get_group_options(group, ObjectType.CONFIG)


@contextlib.contextmanager
def composer(words: list[str], config_dir: str | None) -> Iterator[Composer]:
    """A Composer, as long as its Hydra session lives."""
    with hydra_session(config_dir) as hydra:
        yield Composer(hydra, words, config_dir)
