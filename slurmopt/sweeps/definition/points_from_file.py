"""Reads the points of a sweep from a .csv or .jsonl file: `sweep.points`."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from slurmopt.errors import ConfigError, one_line
from slurmopt.grid.axes import Axis, Column
from slurmopt.grid.override_syntax import FLOAT, INT, is_text

KEY = "sweep.points"
_HEAD = re.compile(r"(\+{0,2})([^+~=\s][^=\s]*)")
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_MEANT = "[{'\""

csv.field_size_limit(2**27)


def read_points(path: str, is_group: Callable[[str], bool]) -> Axis:
    """The points as one axis whose keys advance together. Raises ConfigError that names file and line."""
    file = Path(path).expanduser()
    read = {".csv": _csv_rows, ".jsonl": _jsonl_rows}.get(file.suffix.lower())
    if read is None:
        raise ConfigError(f"{path!r} is neither .csv nor .jsonl", KEY)
    try:
        return _axis(path, list(read(file)), is_group)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not valid UTF-8 (byte {error.start})", KEY) from error
    except (OSError, ValueError) as error:
        reason = (error.strerror or "") if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{path} cannot be read: {reason.lower()}", KEY) from error


def _axis(path: str, rows: list[tuple[int, dict[str, Any]]], is_group: Callable[[str], bool]) -> Axis:
    if not rows:
        raise ConfigError(f"{path} has no points", KEY)
    heads = list(rows[0][1])
    for line, row in rows:
        if row.keys() != rows[0][1].keys():
            _differs(path, line, list(row), heads, rows[0][0])
    if not heads:
        raise ConfigError(f"{path}:{rows[0][0]} names no key", KEY)
    columns = tuple(_column(path, rows, head, is_group) for head in heads)
    keys = [column.key for column in columns]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise ConfigError(f"{path} has {twice[0]!r} twice", KEY)
    return Axis(columns)


def _differs(path: str, line: int, keys: list[str], heads: list[str], first: int) -> None:
    lacks = [head for head in heads if head not in keys]
    difference = f"lacks {lacks[0]!r}" if lacks else f"has {next(key for key in keys if key not in heads)!r} too"
    raise ConfigError(f"{path}:{line} {difference}, unlike line {first}; all points have the same keys", KEY)


def _column(path: str, rows: list[tuple[int, dict[str, Any]]], head: str, is_group: Callable[[str], bool]) -> Column:
    match = _HEAD.fullmatch(head)
    if match is None:
        raise ConfigError(f"{path}: {head!r} is not a key; valid: a form such as lr, model.layers, +seed", KEY)
    group = is_group(match[2].partition("@")[0])
    values = [row[head] for _, row in rows]
    if group:
        for (line, _), value in zip(rows, values, strict=True):
            if not isinstance(value, (str, list, dict)):
                raise ConfigError(f"{path}:{line} {head}: {value!r} is not a name of a config", KEY)
    return Column(key=match[2], values=values, prefix=match[1], group=group)


def _csv_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with _open(path) as file:
        reader = csv.reader(file, strict=True, skipinitialspace=True)
        try:
            heads = [head.strip() for head in next(reader, [])]
            for cells in reader:
                if cells:
                    yield reader.line_num, _csv_row(path, reader.line_num, heads, cells)
        except csv.Error as error:
            raise ConfigError(f"{path}:{reader.line_num} {error}", KEY) from error


def _csv_row(path: Path, line: int, heads: list[str], cells: list[str]) -> dict[str, Any]:
    if len(set(heads)) < len(heads):
        raise ConfigError(f"{path} has {next(head for head in heads if heads.count(head) > 1)!r} twice", KEY)
    if len(cells) != len(heads):
        raise ConfigError(f"{path}:{line} has {len(cells)} values for {len(heads)} keys", KEY)
    row = {}
    for head, cell in zip(heads, cells, strict=True):
        if not cell.strip():
            raise ConfigError(f"{path}:{line} {head} is empty; write null, or '' for an empty text", KEY)
        try:
            row[head] = cell_value(cell)
        except ValueError as error:
            raise ConfigError(f"{path}:{line} {head}: {error}", KEY) from error
    return row


@lru_cache(maxsize=100_000)
def cell_value(cell: str) -> Any:
    """The value of a cell by Hydra's grammar; text that it cannot parse stays text. ValueError for an unclosed bracket
    or quote."""
    text = cell.strip()
    if INT.fullmatch(text):
        return int(text)
    if FLOAT.fullmatch(text):
        return float(text)
    if _BARE.fullmatch(text) and is_text(text):
        return text
    try:
        override = OverridesParser.create().parse_override(f"cell={text}")
        return cell if override.is_sweep_override() else override.value()
    except (HydraException, RecursionError) as error:
        if text[0] in _MEANT:
            reason = one_line(str(error).partition("\nSee https")[0].replace("\n", " "))
            raise ValueError(f"{one_line(text[:60])!r} cannot be read: {reason[:200]}") from error
        return cell


def _jsonl_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, _json_row(path, number, line)


def _json_row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}:{number} is not valid JSON: {one_line(str(error))}", KEY) from error
    if "\\u" in line and not _encodable(row):
        raise ConfigError(f"{path}:{number} has half of a character (\\ud800 to \\udfff), which is not text", KEY)
    if not isinstance(row, dict):
        raise ConfigError(f'{path}:{number} is not an object; valid: {{"lr": 0.1}}', KEY)
    return row


def _encodable(row: Any) -> bool:
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a key comes twice")
    return row


def _open(path: Path) -> Any:
    if path.exists() and not path.is_file():
        raise ValueError("it is not a file")
    return path.open(encoding="utf-8-sig", newline="")
