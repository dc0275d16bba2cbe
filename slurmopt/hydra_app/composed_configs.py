"""Cache of composed configs for the points of a multirun, one for each combination of config group choices.

Hydra reads and merges all config files again for each point. The files depend only on the group choices among the
overrides; all other overrides are values, which are set last. The parent that forks the points therefore composes once
for each combination, and a point only sets its values.
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
"""The maximum number of cached combinations. No point starts before they are composed, and the parent keeps all of
them in memory."""


class BaseConfigs:
    """The composed configs of one multirun."""

    def __init__(self, loader: Any, master: DictConfig) -> None:
        """`loader`: Hydra's config loader; `master`: the config of the launch of the multirun."""
        self._loader, self._master = loader, master
        self._composed: dict[tuple[str, ...], DictConfig] = {}
        self._is_group: dict[str, bool] = {}

    def prepare(self, jobs: Iterable[list[str]]) -> None:
        """Composes the configs of the most common combinations, if several of the jobs have them. It composes at least
        once, which fills the caches of Hydra's parsers. `jobs`: the overrides of each job."""
        counts: Counter[tuple[str, ...]] = Counter()
        for job in jobs:
            with contextlib.suppress(Exception):  # the job reports an invalid override
                counts[self._choice(job)] += 1
        choices = counts.most_common(_MOST)
        for choice, count in choices[:1] + list(itertools.takewhile(lambda one: one[1] > 1, choices[1:])):
            with contextlib.suppress(Exception):  # the jobs report an invalid choice
                config = self._by_hydra(list(choice))
                if count > 1:
                    self._composed[choice] = config

    def config(self, overrides: list[str]) -> DictConfig:
        """Returns the config of a job; the result and the exceptions are those of Hydra's `load_sweep_config`."""
        with contextlib.suppress(Exception):  # Hydra reports the error below
            # The config is modified in place, so only one job can use it.
            base = self._composed.pop(self._choice(overrides), None)
            if base is not None:
                return self._with_values(base, overrides)
        return self._by_hydra(overrides)

    def _by_hydra(self, overrides: list[str]) -> DictConfig:
        config: DictConfig = self._loader.load_sweep_config(self._master, overrides)
        return config

    def _choice(self, overrides: list[str]) -> tuple[str, ...]:
        return tuple(word for word in overrides if self._chooses(word))

    def _chooses(self, word: str) -> bool:
        """Whether an override chooses a config of a group: its key is a group, and its value is not a dictionary."""
        key, _, value = word.partition("=")
        group = key.lstrip("+~").partition("@")[0]
        if group not in self._is_group:
            self._is_group[group] = self._groups.group_exists(group)
        return self._is_group[group] and not value.lstrip().startswith("{")

    @property
    def _groups(self) -> Any:
        """Hydra's repository of the config files, including those of `hydra.searchpath`."""
        name, own = self._master.hydra.job.config_name, list(self._master.hydra.overrides.hydra)
        return self._loader._parse_overrides_and_create_caching_repo(name, own)[1]

    def _with_values(self, config: DictConfig, overrides: list[str]) -> DictConfig:
        """Completes a config that is composed of its files like Hydra: sets the values and the `hydra` node."""
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
