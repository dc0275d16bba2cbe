"""Several configs composed in one Hydra session: one per combination of config-group choices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from hydra._internal.hydra import Hydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from slurmopt.config.compose import PRIMARY, compose_errors, compose_with, hydra_session


class Composer:
    """Hydra's grammar and composition over the launch's search path. Raises ConfigError for all that Hydra refuses."""

    def __init__(self, hydra: Hydra, words: list[str], config_dir: str | None) -> None:
        self._hydra, self._words, self._config_dir = hydra, words, config_dir

    def parse(self, words: list[str]) -> list[Override]:
        """The overrides, in their order."""
        with compose_errors(self._config_dir):
            return OverridesParser.create(config_loader=self._hydra.config_loader).parse_overrides(words)

    def compose(self, words: list[str]) -> DictConfig:
        """The composed config, nothing resolved."""
        with compose_errors(self._config_dir):
            return compose_with(self._hydra, words)

    def is_group(self, key: str) -> bool:
        """Whether Hydra takes `key=value` for a choice of a config."""
        with compose_errors(self._config_dir):
            return bool(self._repository.group_exists(key))

    def options(self, group: str) -> list[str]:
        """The configs of a group."""
        with compose_errors(self._config_dir):
            return list(self._repository.get_group_options(group, results_filter=ObjectType.CONFIG))

    @cached_property
    def _repository(self) -> Any:
        """The search path as this launch has it: `hydra.searchpath` can be an override."""
        search = [word for word in self._words if word.lstrip("+").startswith("hydra.searchpath=")]
        return self._hydra.config_loader._parse_overrides_and_create_caching_repo(PRIMARY, search)[1]  # type: ignore[attr-defined]


@contextlib.contextmanager
def composer(words: list[str], config_dir: str | None) -> Iterator[Composer]:
    """A Composer, as long as its Hydra session lives."""
    with hydra_session(config_dir) as hydra:
        yield Composer(hydra, words, config_dir)
