"""Checks that the jobs of a batch can be composed: each value is checked once, not each combination."""

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
    """Composes the first job and one job for each further choice of a config group, and sets all other values on these
    configs.

    Raises Hydra's exception for the first invalid value.
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
    """Whether an override chooses a config of a group. `choices`: the groups of the composed config, including those
    added by `+group=x`."""
    return override.package is not None or override.key_or_group in choices


def _settings(words: list[str]) -> list[Override]:
    """Parses overrides. `+key` becomes `++key`, because the first job has already added the key."""
    numbers: dict[str, Override] = {}
    overrides = []
    for word in words:
        key, _, text = word.partition("=")
        number = _number(text)
        if number is None or key not in numbers:
            override = _parsed(f"+{word}" if key.startswith("+") and not key.startswith("++") else word)
            if number is not None:
                numbers[key] = override
        else:  # Hydra's parser takes milliseconds per word; most long axes are numbers
            override = replace(numbers[key], _value=number, input_line=word)
        overrides.append(override)
    return overrides


def _number(text: str) -> int | float | None:
    """Returns the number in `text`; None if Hydra could parse it differently."""
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else None


def _parsed(word: str) -> Override:
    return OverridesParser.create().parse_override(word)
