"""Writes what Python gives to `submit` as overrides of Hydra, as they would be typed after `slurmopt launch`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from slurmopt.api.values import axis_of, literals, plain, same
from slurmopt.config.schema import GROUPS
from slurmopt.errors import ConfigError, one_line
from slurmopt.grid.override_syntax import override_value

_KEY = re.compile(r"(~|\+{0,2})([^\s=+~,'\"()\[\]{}\\]+)")
_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Overrides:
    """Overrides with the folders of config groups in view. `adds`: keys that are not slurmopt's are new ones, because
    there is no experiment that has them."""

    def __init__(self, folders: Sequence[Path], adds: bool) -> None:
        self._folders, self._adds = folders, adds

    def of_items(self, items: Iterable[tuple[Any, Any]]) -> Iterator[str]:
        """The overrides of keys and values."""
        for name, value in items:
            prefix, key = _parted(name)
            try:
                yield from self._words(prefix or self._prefix(key), key, value)
            except RecursionError as error:
                raise ConfigError("is nested too deeply, or in itself", key) from error

    def _prefix(self, key: str) -> str:
        if not self._adds or re.split(r"[./@]", key)[0] in GROUPS:
            return ""
        from slurmopt.config.composition.error_messages import meant_key

        if (meant := meant_key(key)) is not None:  # `submit(command=…, nodes=2)` would run on one node
            raise ConfigError(
                f"would be a key of your own; did you mean {{'{meant}': …}}? For one of your own: {{'+{key}': …}}", key
            )
        return "+"

    def _words(self, prefix: str, key: str, value: Any) -> Iterator[str]:
        if prefix == "~":
            if value is not None:
                raise ConfigError("a key is deleted without a value; valid: None", f"~{key}")
            yield f"~{key}"
        elif isinstance(value, Mapping) and value and self._is_group(key):
            yield from self._of_group(prefix, key, value)
        elif (values := axis_of(value)) is not None:
            yield _axis(prefix, key, values)
        else:
            yield _single(prefix, key, plain(value, key))

    def _is_group(self, key: str) -> bool:
        """Whether Hydra takes the value of `key` for the name of a config, so that its mapping is given key by key."""
        return key.partition(".")[0] in GROUPS or any((folder / key).is_dir() for folder in self._folders)

    def _of_group(self, prefix: str, key: str, items: Mapping[Any, Any]) -> Iterator[str]:
        prefix = prefix or ("++" if _is_open(key) else "")
        for name, value in items.items():
            if not isinstance(name, str) or not _SIMPLE.fullmatch(name):
                raise ConfigError(f"{name!r} is no key here; valid: letters, digits, '_' and '-'", key)
            if (inner := axis_of(value)) is not None:  # it is an axis only where it is given to a key of submit
                value = tuple(inner)
            yield from self._words(prefix, f"{key}.{name}", value)


def _is_open(key: str) -> bool:
    """Whether `key` is one of slurmopt's mappings that take any key, such as `environment.variables`."""
    from omegaconf import DictConfig, OmegaConf

    group, *path = key.split(".")
    node: Any = OmegaConf.structured(GROUPS[group]) if group in GROUPS else None
    for part in path:
        node = node._get_node(part) if isinstance(node, DictConfig) and part in node else None
    return isinstance(node, DictConfig) and OmegaConf.get_type(node) is dict


def _parted(name: Any) -> tuple[str, str]:
    match = _KEY.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise ConfigError(f"{name!r} is no key; valid: such as lr, resources.nodes or +model.layers")
    return match[1], match[2]


def _single(prefix: str, key: str, value: Any) -> str:
    return _checked(f"{prefix}{key}={_written(value, key)}", key, [value])


def _axis(prefix: str, key: str, values: Sequence[Any]) -> str:
    if not values:
        raise ConfigError("has no values; for an empty list in the config give an empty tuple: ()", key)
    if list(values) == [None]:  # Hydra has no way to write it
        raise ConfigError("a list of None alone is no axis; give None", key)
    if isinstance(values, range):
        return f"{prefix}{key}=range({values.start},{values.stop},{values.step})"
    wanted = [plain(value, f"{key}[{index}]") for index, value in enumerate(values)]
    words = ",".join(_written(value, key) for value in wanted)
    return _checked(f"{prefix}{key}={words if len(wanted) > 1 else f'choice({words})'}", key, wanted)


def _written(value: Any, key: str) -> str:
    try:
        return override_value(literals(value))
    except ValueError as error:  # Python refuses to write, and Hydra to read, an int of more than 4300 digits
        raise ConfigError(str(error), key) from error


def _checked(word: str, key: str, wanted: list[Any]) -> str:
    """`word`, if Hydra reads it as the values that are wanted: its grammar has no way to write some keys."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Override
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(word)
        is_sweep = override.is_sweep_override()
        read = [*map(Override._convert_value, override.sweep_iterator())] if is_sweep else [override.value()]
    except HydraException:
        read = []
    if not same(read, literals(wanted)):
        raise ConfigError(f"{_shown(wanted)} has keys that no override can give; put it into a config file", key)
    return word


def _shown(wanted: list[Any]) -> str:
    text = one_line(repr(wanted[0] if len(wanted) == 1 else wanted))
    return text if len(text) <= 80 else f"{text[:80]}…"
