"""Writes the series of a node: a file of merged rows and events, and a file of the newest rows that stays small.

Each write is one system call of whole lines, so a crash loses the last row at most. Lines that a full disk, or a file
system that is away, did not take are written with the next ones.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurmopt.errors import one_line
from slurmopt.job.monitor.rows import Merged
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import open_append, replace_bytes
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series_format import FORMAT, KEY, LAST

MERGED_SECONDS = 600.0
"""The length of a merged row."""
LARGEST_RECENT = 1 << 20
"""Bytes at which the file of the newest rows is written anew, with half as many."""
MOST_COLUMNS = 4000
MOST_EVENTS = 10
"""In the time of one merged row. Others are counted."""
_LONGEST_EVENT = 400
_MOST_WAITING = 1000
"""Lines that are kept while they cannot be written: those of some hours."""
_DIGITS = 5


class SeriesWriter:
    """The two files of one node. No method raises OSError."""

    def __init__(self, run: RunFolder, attempt: int, node: str) -> None:
        self._attempt, self._node = attempt, node
        self._merged_file = _File(run.series(attempt, node))
        self._recent_file = _File(run.recent_series(attempt, node))
        self._columns: dict[str, None] = {}
        """In the order of the rows: new ones come last, so that older rows lack values at their end alone."""
        self._head: dict[str, Any] = {}
        self._kept: deque[tuple[float, bytes]] = deque()
        """The rows that the file of the newest has, and when each ended."""
        self._merged, self._merged_seconds, self._end = Merged(), 0.0, 0.0
        self._merged_end = float("-inf")
        self._events = self._more_events = 0

    def row(
        self, end: float, seconds: float, values: Mapping[str, float], facts: dict[str, Any], absent: dict[str, str]
    ) -> None:
        """Writes a row, and a merged one if that is due. `end`: by the wall clock."""
        for column in values:
            if len(self._columns) < MOST_COLUMNS:
                self._columns.setdefault(column)
        absent = {column: why for column, why in absent.items() if column not in self._columns}
        self._head = {"absent": absent, "facts": facts}
        self._end, seconds = round(end, 2), round(seconds, 3)
        line = _line(self._end, seconds, values, self._columns)
        self._kept.append((self._end, line))
        self._recent_file.append(self._header(), line, len(self._columns))
        self._merged.add(values, seconds)
        self._merged_seconds += seconds
        if self._merged_seconds >= MERGED_SECONDS - seconds / 2:
            self._write_merged()
        if self._recent_file.size > LARGEST_RECENT:
            self._shorten()

    def event(self, event: Mapping[str, Any]) -> None:
        """Writes an event; of a storm of them the first ones, and how many there were."""
        line = json.dumps(event, default=str).encode()
        if self._events < MOST_EVENTS and len(line) <= _LONGEST_EVENT:
            self._events += 1
            self._merged_file.append(self._header(), line, len(self._columns))
        else:
            self._more_events += 1

    def finish(self) -> None:
        """Writes what has not been merged yet."""
        if self._merged_seconds > 0:
            self._write_merged()

    def _write_merged(self) -> None:
        line = _line(self._end, round(self._merged_seconds, 3), self._merged.values(), self._columns)
        self._merged_file.append(self._header(), line, len(self._columns))
        if self._more_events:
            more = {"event": "more", "time": self._end, "count": self._more_events}
            self._merged_file.append(self._header(), json.dumps(more).encode(), len(self._columns))
        self._merged, self._merged_seconds = Merged(), 0.0
        self._events = self._more_events = 0
        self._merged_end = self._end

    def _header(self) -> bytes:
        head = {KEY: FORMAT, "node": self._node, "attempt": self._attempt, "columns": [*self._columns], **self._head}
        return json.dumps(head, separators=(",", ":"), default=str).encode()

    def _shorten(self) -> None:
        """Writes the file of the newest rows anew: half of what it may hold, and at least the rows that are not merged
        yet."""
        header = self._header()
        size = len(header) + sum(len(line) + 1 for _, line in self._kept)
        while self._kept and size > LARGEST_RECENT // 2 and self._kept[0][0] <= self._merged_end:
            size -= len(self._kept.popleft()[1]) + 1
        self._recent_file.replace(header, [_padded(line, len(self._columns)) for _, line in self._kept])


def _line(end: float, seconds: float, values: Mapping[str, float], columns: Mapping[str, None]) -> bytes:
    return f"[{end},{seconds},{','.join(_text(column, values.get(column)) for column in columns)}]".encode()


def _text(column: str, value: float | None) -> str:
    """A value with five significant digits; a step is exact."""
    if value is None:
        return "null"
    if value == int(value) and (abs(value) < 10**_DIGITS or column.endswith(LAST)):
        return str(int(value))
    return f"{value:.{_DIGITS}g}".replace("e+", "e")


def _padded(line: bytes, columns: int) -> bytes:
    missing = columns + 1 - line.count(b",")
    return line[:-1] + b",null" * missing + b"]"


class _File:
    """A file of lines that begins with a header, which is written again where it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: bytes | None = None
        """The last header in the file; None where that is unknown."""
        self._waiting: deque[bytes] = deque(maxlen=_MOST_WAITING)
        self.size = 0
        self._complained = False

    def append(self, header: bytes, line: bytes, columns: int) -> None:
        """Appends a line, and those that could not be written before, below a header with so many columns."""
        self._waiting.append(line)
        lines = [_padded(line, columns) if line.startswith(b"[") else line for line in self._waiting]
        try:
            self._append(b"\n".join([*([] if header == self._written else [header]), *lines, b""]))
        except OSError as error:
            self._has_failed(error)
        else:
            self._written = header
            self._waiting.clear()

    def _append(self, data: bytes) -> None:
        descriptor = self._open()
        try:
            size = os.fstat(descriptor).st_size
            if events.torn(descriptor):
                data = b"\n" + data
            if os.write(descriptor, data) < len(data):  # a part of it filled the disk
                os.ftruncate(descriptor, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
            self.size = size + len(data)
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        try:
            return open_append(self._path)
        except FileNotFoundError:
            held(self._path.parent).mkdir(mode=0o750, parents=True, exist_ok=True)
            return open_append(self._path)

    def replace(self, header: bytes, lines: list[bytes]) -> None:
        """Replaces the file."""
        data = b"\n".join([header, *lines, b""])
        try:
            replace_bytes(self._path, data)
        except OSError as error:
            self._has_failed(error)
            return
        self._written, self.size = header, len(data)
        self._waiting.clear()

    def _has_failed(self, error: OSError) -> None:
        self._written = None
        if not self._complained:
            self._complained = True
            with contextlib.suppress(OSError):  # the log is on that file system too
                what = one_line(error.strerror or str(error))
                print(f"slurmopt: {self._path.name} of the sampler is not written: {what}", file=sys.stderr, flush=True)
