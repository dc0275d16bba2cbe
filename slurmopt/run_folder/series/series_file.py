"""Reads one file of a series: its rows as columns of numbers, its events, and its last header.

Anybody may have written the file: lines that no sampler writes are skipped, and its size is bounded. Rows are read with
msgspec where it is installed, which is several times as fast, else with json.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import compress, islice
from pathlib import Path
from typing import Any

from slurmopt.errors import StorageError
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import TooLarge
from slurmopt.run_folder.json_values import as_int, number, text
from slurmopt.run_folder.series.series_format import ABSENT, FORMAT, KEY, LONGEST_NAME, LONGEST_NODE

_MOST_COLUMNS = 20_000
MOST_VALUES = 20_000_000
"""Of a node. One with 16 GPUs has a tenth of it after a month."""
_LARGEST_FILE = 256 << 20
"""Bytes. A file of a sampler has some megabytes."""
_MOST_EVENTS = 10_000
_LONGEST_LINE = 1 << 20
_LONGEST_NUMBER = 64
_LARGEST = 1e18
"""No measured value is larger: bytes per second of all links of a node are below 10^14."""
_BELOW_ZERO = (".temperature", ".margin")
"""The ends of columns that may be negative: °C."""
_SHAPE = bytes.maketrans(b"123456789E", b"000000000e")
_BLANKS = b" \t\r\f\v"
_BELOW, _LONG, _POWERS = (b",-", b"[-"), b"0" * 19, (b"e00", b"e+00")
"""In the shape of a line, which has a 0 for each digit and no blanks."""
_LARGE_POWER = re.compile(rb"[eE]\+?(?:1[89]|[2-9]\d|\d{3})")
_LATEST = 1e11
"""Seconds since the epoch: the year 5138."""

_Row = list[Any]


@dataclass
class Header:
    """What a header says, but for the columns."""

    node: str
    attempt: int
    absent: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class Table:
    """Rows that have the same columns. All lists have the same length."""

    columns: list[str]
    ends: list[float]
    seconds: list[float]
    values: list[list[float | None]]
    """For each column."""

    def part(self, rows: slice) -> Table:
        """Some of the rows."""
        return Table(self.columns, self.ends[rows], self.seconds[rows], [values[rows] for values in self.values])


class SeriesFile:
    """One file. Its rows become numbers in `tables`."""

    def __init__(self, path: Path) -> None:
        """StorageError where a newer version wrote it; OSError; TooLarge where it is larger than any series."""
        self._path = path
        self._parts: list[tuple[list[str], bytes]] = []
        """Columns, and lines below them."""
        self.header: Header | None = None
        """The last one; None where there is none, as in a file that does not exist."""
        self.events: list[dict[str, Any]] = []
        columns: list[str] = []
        size = 0
        for block in events.blocks(path):
            size += len(block)
            if size > _LARGEST_FILE:
                raise TooLarge(errno.EFBIG, f"it has more than {_LARGEST_FILE >> 20} MiB", str(path))
            columns = self._split(block, columns)

    def _split(self, block: bytes, columns: list[str]) -> list[str]:
        """Takes objects, and the lines between them, out of a block of lines. Returns the columns of the next one."""
        start = 0
        while start < len(block):
            is_object = block[start : start + 1] == b"{"
            stop = block.find(b"\n" if is_object else b"\n{", start)
            piece = block[start : stop if stop >= 0 else len(block)]
            start += len(piece) + 1
            if is_object:
                found = self._take_object(piece)
                columns = columns if found is None else found
            elif columns:
                self._parts.append((columns, piece))
        return columns

    def _take_object(self, line: bytes) -> list[str] | None:
        """Takes an event or a header; returns the columns of a header."""
        value = None
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line) if len(line) <= _LONGEST_LINE else None
        if not isinstance(value, dict):
            return None
        if KEY in value:
            self.header = self._header(value)
            return _columns(value.get("columns"))
        if text(value.get("event")) and number(value.get("time")) is not None and len(self.events) < _MOST_EVENTS:
            self.events.append(value)
        return None

    def _header(self, value: dict[str, Any]) -> Header:
        written = as_int(value[KEY])
        if written is None or written > FORMAT:
            said = f"its format is {text(value[KEY])}, and this slurmopt reads up to {FORMAT}"
            raise StorageError(f"{self._path}: {said}: update slurmopt")
        header = Header(_node(value.get("node")), as_int(value.get("attempt")) or 0)
        absent, facts = value.get("absent"), value.get("facts")
        if isinstance(absent, dict):
            header.absent = {name: why for name, why in absent.items() if _is_name(name) and why in ABSENT}
        if isinstance(facts, dict):
            header.facts = facts
        return header

    @property
    def columns(self) -> list[str]:
        """The columns of all rows, in the order in which they appear."""
        return list(dict.fromkeys(name for columns, _ in self._parts for name in columns))

    @property
    def first_end(self) -> float:
        """When the first row ended; infinity where there is none."""
        found = (end_of(data.partition(b"\n")[0]) for _, data in self._parts)
        return next((end for end in found if end > float("-inf")), float("inf"))

    def tables(self, after: float | None = None, wanted: Callable[[str], bool] | None = None) -> Iterator[Table]:
        """All rows; or those behind the row that ended at `after`, and where there is none, those that ended later.
        `wanted`: which columns. Raises TooLarge where they are more than any sampler writes."""
        parts = self._parts if after is None else self._behind(after)
        if sum(data.count(b",") + data.count(b"[") for _, data in parts) > MOST_VALUES:  # before they take memory
            raise TooLarge(errno.EFBIG, f"it has more than {MOST_VALUES:,} values", str(self._path))
        for columns, data in parts:
            rows = _numbers(data, len(columns) + 2)
            if rows:
                table = _table(columns, rows, wanted)
                yield _bounded(table) if _may_be_impossible(data) else table

    def _behind(self, after: float) -> list[tuple[list[str], bytes]]:
        if (rest := self._behind_row(after)) is not None:
            return rest
        parts = [(columns, data.split(b"\n")) for columns, data in self._parts]
        ends = [end_of(line) for _, lines in parts for line in lines]
        place = len(ends) - ends[::-1].index(after) if after in ends else None
        keeps = iter([end > after if place is None else at >= place for at, end in enumerate(ends)])
        kept = [(columns, list(compress(lines, islice(keeps, len(lines))))) for columns, lines in parts]
        return [(columns, b"\n".join(lines)) for columns, lines in kept if lines]

    def _behind_row(self, after: float) -> list[tuple[list[str], bytes]] | None:
        """The lines behind the last row that ended at `after`, looked for from the end: it is among the newest, most
        of the file being older. None where there is no such row."""
        found: list[tuple[list[str], bytes]] = []
        for columns, data in reversed(self._parts):
            stop = len(data)
            while stop >= 0:
                start = data.rfind(b"\n", 0, stop) + 1
                if end_of(data[start:stop]) == after:
                    left = data[stop + 1 :]
                    return [(columns, left), *reversed(found)] if left else found[::-1]
                stop = start - 1
            found.append((columns, data))
        return None


def end_of(line: bytes) -> float:
    """When the interval of a row ended; minus infinity where the line is none."""
    try:
        return float(line[1 : line.index(b",", 0, _LONGEST_NUMBER)])
    except ValueError:
        return float("-inf")


def _table(columns: list[str], rows: list[_Row], wanted: Callable[[str], bool] | None) -> Table:
    ends, seconds, *values = zip(*rows, strict=True)
    if wanted is not None:
        keeps = [wanted(name) for name in columns]
        columns, values = list(compress(columns, keeps)), list(compress(values, keeps))
    return Table(columns, list(ends), list(seconds), [*map(list, values)])


def _may_be_impossible(data: bytes) -> bool:
    """Whether lines may have a value below zero or above the largest: few need a look at each value. A regular
    expression for all of it would take as long as all the rest of the reading."""
    shape = data.translate(_SHAPE, _BLANKS)
    if _LONG in shape or any(sign in shape for sign in _BELOW):
        return True
    return any(power in shape for power in _POWERS) and _LARGE_POWER.search(data) is not None


def _bounded(table: Table) -> Table:
    """Without the values that no sampler writes: they count as missing."""
    for place, (name, values) in enumerate(zip(table.columns, table.values, strict=True)):
        least = -_LARGEST if name.endswith(_BELOW_ZERO) else 0.0
        table.values[place] = [value if value is not None and least <= value <= _LARGEST else None for value in values]
    return table


def _node(name: object) -> str:
    """The name of a node as a header has it; `?` where it can be none."""
    found = text(name) or ""
    return found if found[:1].isalnum() and len(found) <= LONGEST_NODE else "?"


def _is_name(name: object) -> bool:
    """A program for tables would take one such as `=1+1` for a formula."""
    return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name[0].isalpha() and name.isprintable()


def _columns(names: object) -> list[str]:
    """The columns of a header; none, so that its rows do not count, where they cannot be a sampler's."""
    if not isinstance(names, list) or len(names) > _MOST_COLUMNS or not all(map(_is_name, names)):
        return []
    return names if len(set(names)) == len(names) else []


def _numbers(data: bytes, length: int) -> list[_Row]:
    """The rows among the lines, as lists of numbers."""
    lines = data.rstrip(b"\n")
    with contextlib.suppress(*_ERRORS):
        rows = _decode(b"[" + lines.replace(b"\n", b",") + b"]")
        if all(map(_is_row, rows, [length] * len(rows))):
            return rows
    # A line is torn, or odd: each is looked at for itself.
    return [row for line in lines.split(b"\n") for row in _one(line) if _is_row(row, length)]


def _one(line: bytes) -> list[_Row]:
    with contextlib.suppress(*_ERRORS):
        return _decode(b"[" + line + b"]")
    return [row] if (row := _odd(line)) is not None else []


def _is_row(row: _Row, length: int) -> bool:
    return (
        len(row) == length
        and row[0] is not None
        and row[1] is not None
        and 0 <= row[0] <= _LATEST
        and 0 <= row[1] <= _LATEST
    )


def _odd(line: bytes) -> _Row | None:
    try:
        value = json.loads(line) if len(line) <= _LONGEST_LINE else None
    except (ValueError, RecursionError):
        return None
    return [number(item) for item in value] if isinstance(value, list) else None


def _decode_without_msgspec(data: bytes) -> list[_Row]:
    rows: list[_Row] = json.loads(data, parse_int=float, parse_constant=_refuse)
    for row in rows:
        if not set(map(type, row)) <= _OF_ROWS or float("inf") in row or float("-inf") in row:
            raise ValueError("a value is no finite number")
    return rows


_OF_ROWS = {float, type(None)}


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no finite number")


_decode: Callable[[bytes], list[_Row]] = _decode_without_msgspec
_ERRORS: tuple[type[Exception], ...] = (ValueError, RecursionError, TypeError)
with contextlib.suppress(ImportError):  # the Python of a job may have the standard library alone
    import msgspec

    _decode = msgspec.json.Decoder(list[list[float | None]]).decode
    _ERRORS = (msgspec.MsgspecError,)
