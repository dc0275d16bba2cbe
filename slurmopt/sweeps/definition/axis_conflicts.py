"""Which swept keys make which axes, and which of them get in each other's way."""

from __future__ import annotations

from collections.abc import Sequence

from omegaconf._utils import split_key

from slurmopt.config.check import did_you_mean
from slurmopt.errors import ConfigError
from slurmopt.grid.axes import Axis, Column, Interval
from slurmopt.sweeps.definition.axes import Fixed

Part = Fixed | Column


def merged(params: list[Part], typed: list[Part]) -> list[Part]:
    """`hydra.sweeper.params`, then what was typed, which wins; in the order in which Hydra combines them."""
    found = {part.key: part for part in params}
    rest: list[Part] = []
    for part in typed:
        if part.key in found:
            found[part.key] = part
        else:
            rest.append(part)
    return [*found.values(), *rest]


def arranged(parts: Sequence[Part], zipped: list[list[str]], file: Axis | None) -> list[Axis]:
    """The axes; `file`, whose columns are among the parts, comes first.

    Raises ConfigError for keys that collide, and where nothing is swept.
    """
    columns = [part for part in parts if isinstance(part, Column)]
    if not columns:
        raise ConfigError("nothing is swept; give a key several values, such as lr=1e-4,3e-4 or 'seed=range(5)'", "-m")
    _refuse_twice(parts, columns)
    _refuse_nested(columns)
    if file is None:
        return _zipped(columns, zipped)
    return [file, *_zipped([column for column in columns if column not in file.columns], zipped)]


def _refuse_twice(parts: Sequence[Part], columns: list[Column]) -> None:
    seen: set[str] = set()
    for column in columns:
        if column.key in seen:
            raise ConfigError("is swept twice; leave one out", column.key)
        seen.add(column.key)
    places = {part.key: place for place, part in enumerate(parts) if isinstance(part, Column)}
    for place, part in enumerate(parts):
        if not isinstance(part, Fixed):
            continue
        if part.key in seen:
            raise ConfigError(f"is swept, and {part.typed} sets it too; leave one out", part.key)
        after = [key for key, at in places.items() if at < place and _overlap(key, part.key)]
        if after:
            raise ConfigError(f"is swept, and {part.typed} sets part of the same; write that before it", after[0])


def _refuse_nested(columns: list[Column]) -> None:
    values = [column for column in columns if not column.group]
    for column in values:
        for other in values:
            if column is not other and _overlap(column.key, other.key):
                raise ConfigError(f"is swept, and so is {other.key}, a part of it; sweep one of them", column.key)


def _overlap(one: str, other: str) -> bool:
    """Whether one key is the other, or lies within it."""
    first, second = split_key(one), split_key(other)
    return first == second[: len(first)] or second == first[: len(second)]


def _zipped(columns: list[Column], zipped: list[list[str]]) -> list[Axis]:
    known = {column.key: column for column in columns}
    partner: dict[str, list[str]] = {}
    for keys in zipped:
        for key in keys:
            if key not in known:
                raise ConfigError(f"{key!r} is not swept{did_you_mean(key, known)}", "sweep.zip")
            if key in partner or keys.count(key) > 1:
                raise ConfigError(f"{key!r} comes twice", "sweep.zip")
        _check_lengths([known[key] for key in keys])
        partner.update(dict.fromkeys(keys, keys))
    found: dict[str, Axis] = {}
    for column in columns:
        keys = partner.get(column.key, [column.key])
        found.setdefault(keys[0], Axis(tuple(known[key] for key in keys)))
    return list(found.values())


def _check_lengths(columns: list[Column]) -> None:
    for column in columns:
        if isinstance(column.values, Interval):
            raise ConfigError(f"{column.key!r} is an interval, which has no values to advance through", "sweep.zip")
    if len({len(column) for column in columns}) > 1:
        lengths = ", ".join(f"{column.key} has {len(column)}" for column in columns)
        raise ConfigError(f"keys that advance together need the same number of values; {lengths}", "sweep.zip")
