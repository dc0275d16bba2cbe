"""`--cfg`, `--help`, `--info` and `-sc`: Hydra's own entry point shows them, over the search path of a launch."""

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
    """Hands `words` to `@hydra.main`. It exits by itself where it does not like them."""
    import hydra
    from hydra.core.config_search_path import ConfigSearchPath
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.plugins import Plugins
    from hydra.plugins.search_path_plugin import SearchPathPlugin
    from omegaconf import OmegaConf

    folder = user_folder(config_dir)

    class LaunchSearchPath(SearchPathPlugin):
        """Registered in this process alone: an installed plugin would change every Hydra application."""

        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            put_user_folder_first(search_path, folder)

    register_schema()
    Plugins.instance().register(LaunchSearchPath)
    sys.argv = ["slurmopt launch", *words]
    with careful_yaml(), compose_errors(config_dir):
        # Hydra would tell of a bad one in many lines, with all of it.
        for override in OverridesParser.create().parse_overrides([word for word in words if _OVERRIDE.match(word)]):
            if not override.is_sweep_override():
                OmegaConf.create([override.value()])
        hydra.main(version_base=None, config_path=str(shipped("conf")), config_name=PRIMARY)(lambda _: None)()
    return 0
