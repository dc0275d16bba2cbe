"""Whether the jobs of a batch can be composed, found out without composing each: every value once."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig


def check_values(loader: Any, master: DictConfig, batch: Sequence[Sequence[str]]) -> None:
    """Composes the first job, and one for each further choice of a config group; the other values are set on these.

    Raises what Hydra's own composing raises for the first value that it refuses.
    """
    if not batch:
        return
    first = list(batch[0])
    composed = [loader.load_sweep_config(master, first)]
    choices = composed[0].hydra.runtime.choices
    plain: list[str] = []
    for place, words in enumerate(zip(*batch, strict=True)):
        further = list(dict.fromkeys(words))[1:]
        if further and _picks(_parsed(further[0]), choices):
            composed += [
                loader.load_sweep_config(master, [*first[:place], word, *first[place + 1 :]]) for word in further
            ]
        else:
            plain += further
    values = [_setting(word) for word in plain]
    for config in composed:
        ConfigLoaderImpl._apply_overrides_to_config(values, copy.deepcopy(config))


def _picks(override: Override, choices: Any) -> bool:
    """Whether it picks a config of a group; the composed config knows the groups there are, `+group=x` included."""
    return override.package is not None or override.key_or_group in choices


def _setting(word: str) -> Override:
    """As an override that may find the key there: the first job's has added it."""
    return _parsed(f"+{word}" if word.startswith("+") and not word.startswith("++") else word)


def _parsed(word: str) -> Override:
    return OverridesParser.create().parse_override(word)
