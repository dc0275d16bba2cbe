"""Arranges the swept keys into axes, and refuses keys that conflict."""

from __future__ import annotations

from collections.abc import Sequence

from omegaconf._utils import split_key

from slurmopt.config.check import did_you_mean
from slurmopt.errors import ConfigError
from slurmopt.grid.axes import Axis, Column, Interval
from slurmopt.sweeps.definition.axes import Fixed

Part = Fixed | Column


def merge_parts(params: list[Part], typed: list[Part]) -> list[Part]:
    """`hydra.sweeper.params` and the typed overrides, which win; in the order in which Hydra combines them."""
    by_key = {part.key: part for part in params}
    rest: list[Part] = []
    for part in typed:
        if part.key in by_key:
            by_key[part.key] = part
        else:
            rest.append(part)
    return [*by_key.values(), *rest]


def make_axes(parts: Sequence[Part], zipped: list[list[str]], file: Axis | None) -> list[Axis]:
    """The axes; `file`, whose columns are among the parts, comes first.

    Raises ConfigError for keys that conflict, and where nothing is swept.
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
    swept_keys: set[str] = set()
    for column in columns:
        if column.key in swept_keys:
            raise ConfigError("is swept twice; leave one out", column.key)
        swept_keys.add(column.key)
    places = {part.key: place for place, part in enumerate(parts) if isinstance(part, Column)}
    for place, part in enumerate(parts):
        if not isinstance(part, Fixed):
            continue
        if part.key in swept_keys:
            raise ConfigError(f"is swept, and {part.typed} sets it too; leave one out", part.key)
        overlapping = [key for key, at in places.items() if at < place and _overlap(key, part.key)]
        if overlapping:
            raise ConfigError(f"is swept, and {part.typed} sets part of the same; write that before it", overlapping[0])


def _refuse_nested(columns: list[Column]) -> None:
    values = [column for column in columns if not column.group]
    for column in values:
        for other in values:
            if column is not other and _overlap(column.key, other.key):
                raise ConfigError(f"is swept, and so is {other.key}, a part of it; sweep one of them", column.key)


def _overlap(key: str, other_key: str) -> bool:
    """Whether one key equals the other or contains it."""
    first, second = split_key(key), split_key(other_key)
    return first == second[: len(first)] or second == first[: len(second)]


def _zipped(columns: list[Column], zipped: list[list[str]]) -> list[Axis]:
    columns_by_key = {column.key: column for column in columns}
    partner: dict[str, list[str]] = {}
    for keys in zipped:
        for key in keys:
            if key not in columns_by_key:
                raise ConfigError(f"{key!r} is not swept{did_you_mean(key, columns_by_key)}", "sweep.zip")
            if key in partner or keys.count(key) > 1:
                raise ConfigError(f"{key!r} comes twice", "sweep.zip")
        _check_lengths([columns_by_key[key] for key in keys])
        partner.update(dict.fromkeys(keys, keys))
    axes: dict[str, Axis] = {}
    for column in columns:
        keys = partner.get(column.key, [column.key])
        axes.setdefault(keys[0], Axis(tuple(columns_by_key[key] for key in keys)))
    return list(axes.values())


def _check_lengths(columns: list[Column]) -> None:
    for column in columns:
        if isinstance(column.values, Interval):
            raise ConfigError(f"{column.key!r} is an interval, which has no values to advance through", "sweep.zip")
    if len({len(column) for column in columns}) > 1:
        lengths = ", ".join(f"{column.key} has {len(column)}" for column in columns)
        raise ConfigError(f"keys that advance together need the same number of values; {lengths}", "sweep.zip")
