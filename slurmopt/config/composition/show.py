"""Handles `--cfg`, `--help`, `--info` and `-sc` with Hydra's entry point and the search path of a launch."""

from __future__ import annotations

import re
import sys

from slurmopt.config.composition.compose import (
    PRIMARY,
    careful_yaml,
    compose_errors,
    put_user_folder_first,
    register_schema,
    user_folder,
)
from slurmopt.config.composition.shipped import shipped

_OVERRIDE = re.compile(r"[^-=][^=]*=")


def show(words: list[str], config_dir: str | None) -> int:
    """Runs `@hydra.main` with the arguments `words` and returns 0. Hydra exits the process for invalid arguments."""
    import hydra
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.plugins import Plugins
    from hydra.plugins.search_path_plugin import SearchPathPlugin
    from omegaconf import OmegaConf

    folder = user_folder(config_dir)

    class LaunchSearchPath(SearchPathPlugin):
        """Adds the user's folder. It is registered only in this process; an installed plugin would affect all Hydra
        applications."""

        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            put_user_folder_first(search_path, folder)

    register_schema()
    Plugins.instance().register(LaunchSearchPath)
    sys.argv = ["slurmopt launch", *words]
    with careful_yaml(), compose_errors(config_dir):
        # Checked first: Hydra's own message for an invalid value has many lines and repeats the whole value.
        for override in OverridesParser.create().parse_overrides([word for word in words if _OVERRIDE.match(word)]):
            if not override.is_sweep_override():
                OmegaConf.create([override.value()])
        hydra.main(version_base=None, config_path=str(shipped("conf")), config_name=PRIMARY)(lambda _: None)()
    return 0
