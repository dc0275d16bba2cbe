"""Hydra's config loader with a cache for several compositions: each file is read, and each override parsed, once."""

from __future__ import annotations

import copy

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult


class Loader(ConfigLoaderImpl):
    """Composes as Hydra's own loader does."""

    def __init__(self, loader: ConfigLoader) -> None:
        assert isinstance(loader, ConfigLoaderImpl)
        self.config_search_path, self.repository = loader.config_search_path, loader.repository
        self._known: dict[str, Override] = {}
        self._repositories: dict[tuple[str, ...], _Repository] = {}

    def parsed(self, overrides: list[str]) -> list[Override]:
        """The parsed overrides, in order. Raises what Hydra's parser raises."""
        new = [override for override in overrides if override not in self._known]
        parser = OverridesParser.create(config_loader=self)
        self._known.update(zip(new, parser.parse_overrides(new), strict=True))
        return [self._known[override] for override in overrides]

    def searched(self, config_name: str | None, overrides: list[str]) -> CachingConfigRepository:
        """The search path, with the additions of a `hydra.searchpath` override."""
        paths = tuple(override for override in overrides if "hydra.searchpath" in override)
        if paths not in self._repositories:
            repository = self._repositories[paths] = _Repository(self.repository)
            self._process_config_searchpath(config_name, self.parsed(list(paths)), repository)
        return self._repositories[paths]

    def _parse_overrides_and_create_caching_repo(
        self, config_name: str | None, overrides: list[str]
    ) -> tuple[list[Override], CachingConfigRepository]:
        repository = self.searched(config_name, overrides)
        repository.cache = {}
        return self.parsed(overrides), repository


class _Repository(CachingConfigRepository):
    """Reads each file once. A composition modifies its configs, so each gets its own copy."""

    def __init__(self, delegate: object) -> None:
        super().__init__(delegate)  # type: ignore[arg-type]
        self._read: dict[str, ConfigResult | None] = {}

    def load_config(self, config_path: str) -> ConfigResult | None:
        if config_path not in self.cache:
            self.cache[config_path] = self._loaded(config_path)
        return self.cache[config_path]

    def _loaded(self, config_path: str) -> ConfigResult | None:
        if config_path not in self._read:
            result = self.delegate.load_config(config_path=config_path)
            if result is None or result.path.startswith("structured:"):  # Hydra makes these anew each time
                return result
            self._read[config_path] = result
        return copy.deepcopy(self._read[config_path])
