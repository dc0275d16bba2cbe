"""Composed configs that points of a multirun start from: one for each choice of config groups.

Hydra reads and merges all files of a config for each point anew. The files that it takes follow from the group choices
among the overrides alone; all other overrides are values, which are set last. So the parent that forks points composes
once for each choice, and a point only sets its values.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omegaconf import DictConfig

_MOST = 32
"""So many choices are composed ahead: no point starts before that is done, and the parent keeps all of them."""


class BaseConfigs:
    """The configs of one multirun."""

    def __init__(self, loader: Any, master: DictConfig) -> None:
        """`loader`: Hydra's config loader; `master`: the config that the multirun was launched with."""
        self._loader, self._master = loader, master
        self._composed: dict[tuple[str, ...], DictConfig] = {}
        self._is_group: dict[str, bool] = {}

    def prepare(self, jobs: Iterable[list[str]]) -> None:
        """Composes for the most common choices, of those that several of these jobs make; `jobs`: their overrides. At
        least once, for Hydra's first composing fills the caches of its parsers."""
        counts: Counter[tuple[str, ...]] = Counter()
        for job in jobs:
            with contextlib.suppress(Exception):  # a mistake in an override is its job's to tell
                counts[self._choice(job)] += 1
        choices = counts.most_common(_MOST)
        for choice, count in choices[:1] + list(itertools.takewhile(lambda one: one[1] > 1, choices[1:])):
            with contextlib.suppress(Exception):  # a mistake in a choice is its jobs' to tell
                config = self._by_hydra(list(choice))
                if count > 1:
                    self._composed[choice] = config

    def config(self, overrides: list[str]) -> DictConfig:
        """The config of a job, as Hydra's `load_sweep_config` makes it. Raises what that raises."""
        with contextlib.suppress(Exception):  # Hydra itself tells what is wrong
            base = self._composed.pop(self._choice(overrides), None)  # a process changes it: it is for one job
            if base is not None:
                return self._with_values(base, overrides)
        return self._by_hydra(overrides)

    def _by_hydra(self, overrides: list[str]) -> DictConfig:
        config: DictConfig = self._loader.load_sweep_config(self._master, overrides)
        return config

    def _choice(self, overrides: list[str]) -> tuple[str, ...]:
        return tuple(word for word in overrides if self._chooses(word))

    def _chooses(self, word: str) -> bool:
        """Whether an override chooses of a config group: its key is one, and its value is no dictionary."""
        key, _, value = word.partition("=")
        group = key.lstrip("+~").partition("@")[0]
        if group not in self._is_group:
            self._is_group[group] = self._groups.group_exists(group)
        return self._is_group[group] and not value.lstrip().startswith("{")

    @property
    def _groups(self) -> Any:
        """Hydra's view of the config files, with those that `hydra.searchpath` adds."""
        name, own = self._master.hydra.job.config_name, list(self._master.hydra.overrides.hydra)
        return self._loader._parse_overrides_and_create_caching_repo(name, own)[1]

    def _with_values(self, config: DictConfig, overrides: list[str]) -> DictConfig:
        """Does to a config that is composed of its files what Hydra does last: values, and what its own node tells."""
        from hydra._internal.config_loader_impl import get_overrides_dirname
        from hydra.core.override_parser.overrides_parser import OverridesParser
        from omegaconf import OmegaConf, open_dict, read_write

        parsed = OverridesParser.create().parse_overrides(overrides)
        if any(override.is_hydra_override() or override.is_sweep_override() for override in parsed):
            raise ValueError("for Hydra itself to take or to refuse")
        values = [override for override in parsed if not self._chooses(str(override.input_line))]
        self._loader._apply_overrides_to_config(values, config)
        with read_write(config.hydra), open_dict(config.hydra):
            config.hydra.overrides.task = overrides
            job = config.hydra.job
            job.override_dirname = get_overrides_dirname(overrides=parsed, **job.config.override_dirname)
        OmegaConf.copy_cache(from_config=self._master, to_config=config)
        return config
