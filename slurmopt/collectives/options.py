"""What a benchmark measures: the options of `slurmopt bench collectives`, or the group `bench` of an experiment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from slurmopt.collectives.definitions import COLLECTIVES, ELEMENT
from slurmopt.errors import ConfigError

SIZES = "1K..64M"
SIZE_FORMS = "sizes such as 64M, a list such as 1K,1M, or a range such as 1K..64M, each size four times the one before"
_SIZE = re.compile(r"(\d{1,15})\s*([KMG]?)(?:i?B)?", re.IGNORECASE)
_STEP = 4
_LARGEST = 1 << 40
_MOST_SIZES = 64
_MOST_ITERATIONS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Checked: `options_of` is the way to make it."""

    collectives: tuple[str, ...] = tuple(COLLECTIVES)
    sizes: tuple[int, ...] = ()
    """Bytes, ascending; S of each collective (`slurmopt.collectives.definitions.Collective`)."""
    iterations: int = 20
    """Timed calls of each size at most."""
    warmup: int = 5
    """Calls of each size before those that are timed."""
    seconds: float = 1.0
    """A size that takes longer than this for all its calls gets fewer of them, but three."""
    pairs: bool = True
    """Whether the links between the nodes, or between the ranks of one node, are measured one by one."""

    def as_dict(self) -> dict[str, Any]:
        """As `options_of` reads it."""
        return {**asdict(self), "collectives": list(self.collectives), "sizes": list(self.sizes)}


def options_of(given: Mapping[str, Any]) -> BenchOptions:
    """Checks the options. ConfigError names the key and what would be valid."""
    known = [field.name for field in fields(BenchOptions)]
    for key in given:
        if key not in known:
            raise ConfigError(f"no such key; valid: {', '.join(known)}", f"bench.{key}")
    return BenchOptions(
        collectives=_collectives(given.get("collectives")),
        sizes=_sizes(given.get("sizes")),
        iterations=_count("iterations", given.get("iterations", 20), 1),
        warmup=_count("warmup", given.get("warmup", 5), 0),
        seconds=_seconds(given.get("seconds", 1.0)),
        pairs=_switch(given.get("pairs", True)),
    )


def _collectives(given: Any) -> tuple[str, ...]:
    names = _words(given) if given is not None else list(COLLECTIVES)
    for name in names:
        if name not in COLLECTIVES:
            raise ConfigError(f"no collective {name[:40]!r}; valid: {', '.join(COLLECTIVES)}", "bench.collectives")
    if not names:
        raise ConfigError(f"is empty; valid: {', '.join(COLLECTIVES)}", "bench.collectives")
    return tuple(dict.fromkeys(names))


def _words(given: Any) -> list[str]:
    parts = given.split(",") if isinstance(given, str) else given if isinstance(given, (list, tuple)) else [given]
    return [str(part).strip() for part in parts if str(part).strip()]


def _sizes(given: Any) -> tuple[int, ...]:
    found: set[int] = set()
    for word in _words(SIZES if given is None else given):
        first, between, last = word.partition("..")
        low = _size(first)
        high = _size(last) if between else low
        if high < low:
            raise ConfigError(f"{word[:40]!r} ends before it begins; valid: {SIZE_FORMS}", "bench.sizes")
        while low <= high:
            found.add(low)
            low *= _STEP
    if not 0 < len(found) <= _MOST_SIZES:
        raise ConfigError(f"{len(found)} sizes; valid: 1 to {_MOST_SIZES}", "bench.sizes")
    return tuple(sorted(found))


def _size(word: str) -> int:
    match = _SIZE.fullmatch(word.strip())
    size = int(match[1]) * 1024 ** " KMG".index(match[2].upper() or " ") if match else 0
    if not ELEMENT <= size <= _LARGEST:
        raise ConfigError(f"{word[:40]!r} is no size from {ELEMENT} bytes to 1024G; valid: {SIZE_FORMS}", "bench.sizes")
    return size


def _count(key: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST_ITERATIONS:
        raise ConfigError(f"{str(value)[:40]!r} is no number from {least} to {_MOST_ITERATIONS:,}", f"bench.{key}")
    return value


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 3600:
        raise ConfigError(f"{str(value)[:40]!r} is no number of seconds above 0, up to 3600", "bench.seconds")
    return float(value)


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{str(value)[:40]!r} is not valid; valid: true, false", "bench.pairs")
    return value
