"""Reads one file of a series: its rows as columns of numbers, its events, and its last header.

Anybody may have written the file: lines that no sampler writes are skipped, and its size is bounded. Rows are read with
msgspec where it is installed, which is several times as fast, else with json.
"""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurmopt.errors import StorageError
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import TooLarge
from slurmopt.run_folder.json_values import as_int, number, text
from slurmopt.run_folder.series_format import ABSENT, FORMAT, KEY

_MOST_COLUMNS = 20_000
_LONGEST_NAME = 128
_MOST_VALUES = 20_000_000
"""Of a file. A node with 16 GPUs has a tenth of it after a month."""
_MOST_EVENTS = 10_000
_LONGEST_LINE = 1 << 20

_Row = list[Any]


@dataclass
class Header:
    """What a header says, but for the columns."""

    node: str
    attempt: int
    absent: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Part:
    """The rows below one header."""

    columns: list[str]
    lines: list[bytes] = field(default_factory=list)


class SeriesFile:
    """One file. It is split into lines at once; those that are asked for become numbers in `parts`."""

    def __init__(self, path: Path, since: float | None = None) -> None:
        """`since`: rows that end before are left out. StorageError where a newer version wrote it; OSError."""
        self._path = path
        self._since = float("-inf") if since is None else since
        self._parts: list[_Part] = []
        self._values = 0
        self.header: Header | None = None
        """The last one; None where there is none, as in a file that does not exist."""
        self.events: list[dict[str, Any]] = []
        self.ends: list[float] = []
        """When each row ended."""
        for block in events.blocks(path):
            self._split(block)

    def _split(self, block: bytes) -> None:
        for line in block.splitlines():
            start = line[:1]
            if start == b"[" and self._parts and self._parts[-1].columns:
                self._add_row(line)
            elif start == b"{" and len(line) <= _LONGEST_LINE:
                self._add_object(line)

    def _add_row(self, line: bytes) -> None:
        """Takes a line that has as many values as there are columns, which a torn one has not."""
        part = self._parts[-1]
        if line[-1:] != b"]" or line.count(b",") != len(part.columns) + 1:
            return
        try:
            end = float(line[1 : line.index(b",")])
        except ValueError:
            return
        if not self._since < end < float("inf"):
            return
        self._values += len(part.columns)
        if self._values > _MOST_VALUES:
            raise TooLarge(errno.EFBIG, f"it has more than {_MOST_VALUES} values", str(self._path))
        part.lines.append(line)
        self.ends.append(end)

    def _add_object(self, line: bytes) -> None:
        value = None
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
        if not isinstance(value, dict):
            return
        if KEY in value:
            self._add_header(value)
        elif text(value.get("event")) and number(value.get("time")) is not None and len(self.events) < _MOST_EVENTS:
            self.events.append(value)

    def _add_header(self, value: dict[str, Any]) -> None:
        written = as_int(value[KEY])
        if written is None or written > FORMAT:
            said = f"its format is {text(value[KEY])}, and this slurmopt reads up to {FORMAT}"
            raise StorageError(f"{self._path}: {said}: update slurmopt")
        header = Header(text(value.get("node")) or "?", as_int(value.get("attempt")) or 0)
        absent, facts = value.get("absent"), value.get("facts")
        if isinstance(absent, dict):
            header.absent = {name: why for name, why in absent.items() if _is_name(name) and why in ABSENT}
        if isinstance(facts, dict):
            header.facts = facts
        self.header = header
        self._parts.append(_Part(_columns(value.get("columns"))))

    def parts(self, rows: slice) -> Iterator[tuple[list[str], list[list[Any]]]]:
        """The rows of the slice, in groups that have the same columns: the names of these, and lists of the ends, of
        the lengths, and of the values of each column. A value of a wrong type counts as not measured."""
        start, stop, _ = rows.indices(len(self.ends))
        before = 0
        for part in self._parts:
            lines = part.lines[max(0, start - before) : max(0, stop - before)]
            before += len(part.lines)
            found = _numbers(lines, len(part.columns) + 2)
            if found:
                yield part.columns, [list(values) for values in zip(*found, strict=True)]


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable()


def _columns(names: object) -> list[str]:
    """The columns of a header; none, so that its rows do not count, where they cannot be a sampler's."""
    if not isinstance(names, list) or len(names) > _MOST_COLUMNS or not all(map(_is_name, names)):
        return []
    return names if len(set(names)) == len(names) else []


def _numbers(lines: list[bytes], length: int) -> list[_Row]:
    """The rows as lists of numbers."""
    if not lines:
        return []
    with contextlib.suppress(*_ERRORS):  # one line is odd: each is looked at for itself
        rows = _decode(b"[" + b",".join(lines) + b"]")
        if all(map(_is_row, rows, [length] * len(rows))):
            return rows
    return [row for line in lines if (row := _odd(line)) is not None and _is_row(row, length)]


def _is_row(row: _Row, length: int) -> bool:
    return len(row) == length and row[0] is not None and row[1] is not None and row[1] >= 0


def _odd(line: bytes) -> _Row | None:
    try:
        value = json.loads(line)
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
