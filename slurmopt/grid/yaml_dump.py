"""Writes a config as YAML like `OmegaConf.to_yaml`, but ten times as fast where PyYAML has libyaml."""

from __future__ import annotations

from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf._utils import OmegaConfDumper

_Fast: type[Any] = getattr(yaml, "CDumper", yaml.Dumper)


class _Dumper(_Fast):  # type: ignore[misc]
    """libyaml's dumper, with OmegaConf's quotes around texts that its loader would read as numbers."""


def _text(dumper: Any, text: str) -> Any:
    if "\x85" in text:  # PyYAML without libyaml would write this line end so that it is read as a space
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
    return OmegaConfDumper.str_representer(dumper, text)


_Dumper.add_representer(str, _text)


def dump(config: dict[str, Any]) -> str:
    """The text of config.yaml."""
    text: str = yaml.dump(config, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, sort_keys=False)
    return text


def dump_stored(stored: dict[str, Any]) -> str:
    """The text of config.yaml for a config that may still hold nodes of OmegaConf; interpolations stay as they are."""
    plain = OmegaConf.to_container(OmegaConf.create(stored), resolve=False, enum_to_str=True)
    assert isinstance(plain, dict)
    return dump({str(key): value for key, value in plain.items()})
