"""Reads values of a mapping with their types, and says where one is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurmopt.errors import ConfigError, one_line

_LONGEST = 400
_LEAST = 1e-3
"""Smaller amounts make times that no cluster has."""
_CLOSE = 0.01
"""Numbers that differ by no more than this part agree."""


@dataclass(frozen=True)
class Fields:
    """A mapping of a file, and where it stands in it."""

    values: Mapping[Any, Any]
    file: str
    path: str

    @property
    def name(self) -> str:
        """The key of the mapping itself."""
        return self.path.rpartition(".")[2]

    def where(self, key: str) -> str:
        """The file, and the key in it."""
        path = ".".join(filter(None, (self.path, key))).removeprefix("clusters.")
        return f"{self.file}: {path}" if path else self.file

    def error(self, key: str, value: Any, valid: str) -> ConfigError:
        """The error for a value that is not valid, or is missing (None)."""
        shown = "is missing" if value is None else f"{_short(value)} is not valid"
        return ConfigError(f"{shown}; valid: {valid}", self.where(key))

    def has(self, key: str) -> bool:
        return self.values.get(key) is not None

    def value(self, key: str) -> Any:
        return self.values.get(key)

    def names(self) -> list[str]:
        """The keys. Raises ConfigError for one that is no text."""
        for key in self.values:
            if not isinstance(key, str):
                raise self.error("", key, "texts as keys")
        return list(self.values)

    def only(self, keys: Sequence[str]) -> None:
        """Raises ConfigError for a key that is none of these."""
        for key in self.values:
            if key not in keys:
                raise self.error("", key, f"the keys {', '.join(keys)}")

    def section(self, key: str) -> Fields:
        """A mapping in this one."""
        value = self.values.get(key)
        if not isinstance(value, dict):
            raise self.error(key, value, "a mapping")
        return Fields(value, self.file, ".".join(filter(None, (self.path, key))))

    def text(self, key: str) -> str:
        """One line of text."""
        value = self.values.get(key)
        if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST or not value.isprintable():
            raise self.error(key, value, f"one line of text, up to {_LONGEST} characters")
        return value.strip()

    def word(self, key: str, valid: Sequence[str]) -> str:
        """One of a few words."""
        value = self.values.get(key)
        if not isinstance(value, str) or value not in valid:
            raise self.error(key, value, ", ".join(valid))
        return value

    def whole(self, key: str, most: int) -> int:
        """A whole number from 1 on."""
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise self.error(key, value, f"a whole number, 1 to {most:,}")
        return value

    def number(self, key: str, most: float) -> float:
        """A number from a thousandth on."""
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not _LEAST <= value <= most:
            raise self.error(key, value, f"a number, {_LEAST:g} to {most:,.0f}")
        return float(value)

    def assumed(self) -> list[str]:
        """The keys of this mapping that `assumed` lists."""
        value = self.values.get("assumed", [])
        keys = [key for key in self.values if key not in ("source", "assumed")]
        if not isinstance(value, list) or not all(isinstance(key, str) and key in keys for key in value):
            raise self.error("assumed", value, f"a list of {', '.join(map(str, keys))}")
        return value

    def agrees(self, key: str, value: float, other: float, valid: str) -> None:
        """Raises ConfigError unless both are the same number; counts are the same to the last one."""
        is_count = isinstance(value, int) and isinstance(other, int)
        if value != other if is_count else abs(value - other) > _CLOSE * other:
            raise ConfigError(f"{value:g} does not agree; valid: {valid}", self.where(key))


def top(value: Any, file: str) -> Fields:
    """The whole content of a file, which has the key `clusters` alone."""
    fields = Fields(value if isinstance(value, dict) else {}, one_line(file), "")
    if value is None:
        raise ConfigError("is empty; valid: a mapping with clusters", fields.file)
    if not isinstance(value, dict):
        raise fields.error("", value, "a mapping with clusters")
    fields.only(("clusters",))
    return fields


def _short(value: Any) -> str:
    return one_line(repr(value))[:60]
