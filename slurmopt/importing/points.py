"""The array of a script as a sweep: axes, axes that advance together, or a file of points."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from slurmopt.config.schema import GROUPS

_RESERVED = {*GROUPS, "hydra", "cluster", "defaults", "experiment"}
TASK_KEY = "array_task"


@dataclass
class Points:
    """A sweep."""

    params: dict[str, str] = field(default_factory=dict)
    """Of hydra.sweeper.params."""
    zip: list[list[str]] = field(default_factory=list)
    file: str | None = None
    """The text of a file of points."""
    suffix: str = ".csv"
    """Of that file: `.csv`, or `.jsonl` for values that a table would need to quote."""


class Keys:
    """The keys of the experiment that stand for variables of the script."""

    def __init__(self) -> None:
        self._keys: dict[str, str] = {}

    def key(self, symbol: str) -> str:
        """The key for a symbol: its name in lower case, changed where it is taken."""
        if symbol not in self._keys:
            plain = TASK_KEY if symbol == "SLURM_ARRAY_TASK_ID" else re.sub(r"\W", "_", symbol).lower().strip("_")
            plain = f"my_{plain}" if plain in _RESERVED or not re.match(r"[a-z]", plain) else plain
            while plain in self._keys.values():
                plain += "_2"
            self._keys[symbol] = plain
        return self._keys[symbol]

    def used(self) -> dict[str, str]:
        """Symbol → key, of all that were asked for."""
        return dict(self._keys)


def points(vectors: dict[str, list[str]], exact: set[str]) -> Points:
    """The sweep in which point k has the k-th value of each vector; key → values.

    `exact`: keys whose values are used as text, so that 1e-3 must not become 0.001."""
    columns = list(vectors.values())
    plain = all(_is_plain(value) for column in columns for value in column)
    unique = [list(dict.fromkeys(column)) for column in columns]
    if plain and list(itertools.product(*unique)) == list(zip(*columns, strict=True)):
        return Points(params=_axes(vectors, unique, exact))
    if plain and all(len(set(column)) == len(column) for column in columns):
        return Points(_axes(vectors, columns, exact), [list(vectors)])
    if not plain:
        rows = [json.dumps(dict(zip(vectors, row, strict=True))) for row in zip(*columns, strict=True)]
        return Points(file="\n".join(rows) + "\n", suffix=".jsonl")
    rows = [
        ",".join(cell(value, key in exact) for key, value in zip(vectors, row, strict=True))
        for row in zip(*columns, strict=True)
    ]
    return Points(file="\n".join([",".join(vectors), *rows]) + "\n")


def _axes(keys: Iterable[str], columns: list[list[str]], exact: set[str]) -> dict[str, str]:
    return {key: axis(values, key in exact) for key, values in zip(keys, columns, strict=True)}


def axis(values: list[str], exact: bool = True) -> str:
    """The values in Hydra's syntax of a sweep: `range(0,10)`, `1e-3,1e-4`."""
    if len(values) > 2 and all(re.fullmatch(r"0|[1-9]\d{0,12}", value) for value in values):
        numbers = [int(value) for value in values]
        step = numbers[1] - numbers[0]
        if step > 0 and numbers == list(range(numbers[0], numbers[-1] + 1, step)):
            end = numbers[-1] + step
            return f"range({numbers[0]},{end})" if step == 1 else f"range({numbers[0]},{end},{step})"
    return ",".join(cell(value, exact) for value in values)


def _is_plain(value: str) -> bool:
    return bool(re.fullmatch(r"[\w./+@:=-]([\w ./+@:=-]*[\w./+@:=-])?", value, re.ASCII))


def keeps_its_text(value: str, exact: bool) -> bool:
    """Whether YAML and Hydra may read the text as what it looks like, a number or a word."""
    if not exact and re.fullmatch(r"\d(\.\d+)?[eE]-?\d{1,2}", value):
        return True
    if re.fullmatch(r"[+-]?[\d._]+([eE][+-]?\d+)?", value):
        return re.fullmatch(r"0|-?[1-9]\d*", value) is not None or (value.count(".") == 1 and _is_same(value))
    return not re.fullmatch(r"(?i)[+-]?\.?(inf|nan|true|false|null|yes|no|on|off|y|n|~)|0[xob].*", value)


def _is_same(value: str) -> bool:
    try:
        return str(float(value)) == value
    except ValueError:
        return False


def cell(value: str, exact: bool) -> str:
    """A value of a sweep, in quotes where it would not stay the text that it is."""
    if not keeps_its_text(value, exact) or not re.fullmatch(r"[\w./+@-]+", value):
        return f"'{value}'"
    return value
