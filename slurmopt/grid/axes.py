"""The axes of a sweep: one swept key each, or several that advance together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from slurmopt.grid.codec import decode, encode
from slurmopt.grid.override_syntax import override_value


class Steps(Sequence[Any]):
    """Hydra's range of floats, by its formula start + i·step, computed in decimals as Hydra does."""

    def __init__(self, start: str, step: str, size: int) -> None:
        self.start, self.step, self.size = start, step, size
        self._start, self._step = Decimal(start), Decimal(step)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(self.size))]
        if not -self.size <= index < self.size:
            raise IndexError(index)
        return float(self._start + (index % self.size) * self._step)


@dataclass(frozen=True)
class Interval:
    """All numbers from `start` to `end`, for a search only. Integers where both are ints."""

    start: int | float
    end: int | float


@dataclass(frozen=True, kw_only=True)
class Column:
    """One swept key and its values."""

    key: str
    """As typed, without the prefix: `lr`, `model`, `model@net`."""
    values: Sequence[Any] | Interval
    prefix: str = ""
    """`+` or `++` where the key is added."""
    group: bool = False
    """Whether the values are names of configs of a group."""
    words: dict[int, str] = field(default_factory=dict)
    """Index of a value → its typed text, where `slurmopt.grid.override_syntax` would write it differently."""
    tags: tuple[str, ...] = ()
    """The tags given by `tag()`; a search uses `log`."""

    def __len__(self) -> int:
        return 0 if isinstance(self.values, Interval) else len(self.values)

    def value(self, index: int) -> Any:
        assert not isinstance(self.values, Interval)
        return self.values[index]

    @property
    def first(self) -> Any:
        return self.values.start if isinstance(self.values, Interval) else self.values[0]

    def override(self, index: int) -> str:
        """The Hydra override that gives the value at `index`."""
        typed = self.words.get(index)
        return f"{self.prefix}{self.key}={typed if typed is not None else override_value(self.value(index))}"


@dataclass(frozen=True)
class Axis:
    """One dimension of a sweep. The columns have the same length and advance together."""

    columns: tuple[Column, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(column.key for column in self.columns)

    @property
    def values(self) -> Sequence[Any] | Interval:
        """The values; for several columns tuples with one value per key."""
        if len(self.columns) == 1:
            return self.columns[0].values
        return list(zip(*(column.values for column in self.columns), strict=True))

    @property
    def groups(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.group)

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))


def column_json(column: Column) -> dict[str, Any]:
    """The column as in points.json."""
    data: dict[str, Any] = {"key": column.key, **_values_json(column.values)}
    if column.prefix:
        data["prefix"] = column.prefix
    if column.group:
        data["group"] = True
    if column.words:
        data["words"] = {str(index): text for index, text in column.words.items()}
    if column.tags:
        data["tags"] = list(column.tags)
    return data


def _values_json(values: Sequence[Any] | Interval) -> dict[str, Any]:
    if isinstance(values, Interval):
        return {"interval": [encode(values.start), encode(values.end)]}
    if isinstance(values, range):
        return {"range": [values.start, values.stop, values.step]}
    if isinstance(values, Steps):
        return {"steps": [values.start, values.step, values.size]}
    return {"values": encode(list(values))}


def column_from(held: dict[str, Any]) -> Column:
    """What `column_json` gave. KeyError, TypeError or ValueError for anything else."""
    return Column(
        key=str(held["key"]),
        values=_values_from(held),
        prefix=held.get("prefix", ""),
        group=bool(held.get("group", False)),
        words={int(index): str(text) for index, text in held.get("words", {}).items()},
        tags=tuple(held.get("tags", ())),
    )


def _values_from(held: dict[str, Any]) -> Sequence[Any] | Interval:
    if "interval" in held:
        return Interval(*map(decode, held["interval"]))
    if "range" in held:
        return range(*held["range"])
    if "steps" in held:
        return Steps(*held["steps"])
    values = decode(held["values"])
    if not isinstance(values, list):
        raise TypeError(f"the values of {held['key']} are no list")
    return values
