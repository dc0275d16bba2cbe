"""Writes a config as YAML like `OmegaConf.to_yaml`, but ten times as fast where PyYAML has libyaml."""

from __future__ import annotations

from typing import Any

import yaml
from omegaconf._utils import OmegaConfDumper

_Fast: type[Any] = getattr(yaml, "CDumper", yaml.Dumper)


class _Dumper(_Fast):  # type: ignore[misc]
    """libyaml's dumper, with OmegaConf's quotes around texts that its loader would read as numbers."""


_Dumper.add_representer(str, OmegaConfDumper.str_representer)


def dump(config: dict[str, Any]) -> str:
    """The text of config.yaml."""
    text: str = yaml.dump(config, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, sort_keys=False)
    return text
