"""Whether the jobs of a batch can be composed, found out without composing each: every value once."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

_INT = re.compile(r"-?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+(?:[eE][+-]?[0-9]+)?")


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
    values = _settings(plain)
    for config in composed:
        ConfigLoaderImpl._apply_overrides_to_config(values, copy.deepcopy(config))


def _picks(override: Override, choices: Any) -> bool:
    """Whether it picks a config of a group; the composed config knows the groups there are, `+group=x` included."""
    return override.package is not None or override.key_or_group in choices


def _settings(words: list[str]) -> list[Override]:
    """As overrides that may find their key there: the first job's have added it."""
    numbers: dict[str, Override] = {}
    overrides = []
    for word in words:
        key, _, text = word.partition("=")
        number = _number(text)
        if number is None or key not in numbers:
            override = _parsed(f"+{word}" if key.startswith("+") and not key.startswith("++") else word)
            if number is not None:
                numbers[key] = override
        else:  # Hydra's parser takes milliseconds a word, and long axes are of numbers
            override = replace(numbers[key], _value=number, input_line=word)
        overrides.append(override)
    return overrides


def _number(text: str) -> int | float | None:
    """The number, where Hydra would read the same one."""
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else None


def _parsed(word: str) -> Override:
    return OverridesParser.create().parse_override(word)
