"""Hydra's config loader for several composes in a row: files are read, and words parsed, once."""

from __future__ import annotations

import copy

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult


class Loader(ConfigLoaderImpl):
    """Composes as Hydra's own does."""

    def __init__(self, loader: ConfigLoader) -> None:
        assert isinstance(loader, ConfigLoaderImpl)
        self.config_search_path, self.repository = loader.config_search_path, loader.repository
        self._known: dict[str, Override] = {}
        self._repositories: dict[tuple[str, ...], _Repository] = {}

    def parsed(self, words: list[str]) -> list[Override]:
        """The overrides, in their order. Raises what Hydra's parser raises."""
        new = [word for word in words if word not in self._known]
        parser = OverridesParser.create(config_loader=self)
        self._known.update(zip(new, parser.parse_overrides(new), strict=True))
        return [self._known[word] for word in words]

    def searched(self, config_name: str | None, words: list[str]) -> CachingConfigRepository:
        """The search path, with what `hydra.searchpath` among the words adds to it."""
        paths = tuple(word for word in words if "hydra.searchpath" in word)
        if paths not in self._repositories:
            found = self._repositories[paths] = _Repository(self.repository)
            self._process_config_searchpath(config_name, self.parsed(list(paths)), found)
        return self._repositories[paths]

    def _parse_overrides_and_create_caching_repo(
        self, config_name: str | None, overrides: list[str]
    ) -> tuple[list[Override], CachingConfigRepository]:
        repository = self.searched(config_name, overrides)
        repository.cache = {}
        return self.parsed(overrides), repository


class _Repository(CachingConfigRepository):
    """Reads each file once. A compose changes what it is given, so that each gets its own copy."""

    def __init__(self, delegate: object) -> None:
        super().__init__(delegate)  # type: ignore[arg-type]
        self._read: dict[str, ConfigResult | None] = {}

    def load_config(self, config_path: str) -> ConfigResult | None:
        if config_path not in self.cache:
            self.cache[config_path] = self._loaded(config_path)
        return self.cache[config_path]

    def _loaded(self, config_path: str) -> ConfigResult | None:
        if config_path not in self._read:
            found = self.delegate.load_config(config_path=config_path)
            if found is None or found.path.startswith("structured:"):  # made anew each time by Hydra itself
                return found
            self._read[config_path] = found
        return copy.deepcopy(self._read[config_path])
