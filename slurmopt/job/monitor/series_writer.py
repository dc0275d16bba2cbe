"""Writes the series of a node: a file of merged rows and events, and a file of the newest rows. Both stay small.

Each write is one system call of whole lines, so a crash loses the last row at most. Lines that a full disk, or a file
system that is away, did not take are written with the next ones.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from slurmopt.job.monitor.line_file import LineFile, padded
from slurmopt.job.monitor.rows import Merged
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series.series_format import FORMAT, KEY, LAST, LONGEST_NAME

MERGED_SECONDS = 600.0
"""The length of a merged row."""
HOUR = 6
"""Merged rows that become one once they are old."""
MOST_MERGED, LEAST_MERGED = 192, 96
"""Merged rows at which the older ones become hours, and how many of the newest stay: those of 16 hours."""
LARGEST_RECENT = 1 << 20
"""Bytes at which the file of the newest rows is written anew, with half as many."""
MOST_COLUMNS = 4000
MOST_EVENTS = 10
"""In the time of one merged row. Others are counted."""
_LONGEST_EVENT = 400
_MOST_KEPT_EVENTS = 500
_DIGITS = 5


class SeriesWriter:
    """The two files of one node. No method raises OSError."""

    def __init__(self, run: RunFolder, attempt: int, node: str) -> None:
        self._attempt, self._node = attempt, node
        self._merged_file = LineFile(run.series(attempt, node))
        self._recent_file = LineFile(run.recent_series(attempt, node))
        self._columns: dict[str, None] = {}
        """In the order of the rows: new ones come last, so that older rows lack values at their end alone."""
        self._head: dict[str, Any] = {}
        self._kept: deque[bytes] = deque()
        """The rows that the file of the newest has."""
        self._not_merged = 0
        """How many of them are in no merged row yet."""
        self._hours: list[bytes] = []
        self._merged_lines: list[bytes] = []
        """After those hours."""
        self._event_lines: deque[bytes] = deque(maxlen=_MOST_KEPT_EVENTS)
        self._merged, self._merged_seconds, self._end = Merged(), 0.0, 0.0
        self._is_stale = False
        """Whether the file of merged rows has to be written anew."""
        self._events = self._more_events = 0

    def row(
        self, end: float, seconds: float, values: Mapping[str, float], facts: dict[str, Any], absent: dict[str, str]
    ) -> None:
        """Writes a row, and a merged one if that is due. `end`: by the wall clock."""
        for column in values:
            if column not in self._columns and len(self._columns) < MOST_COLUMNS and _is_name(column):
                self._columns[column] = None
        absent = {column: why for column, why in absent.items() if column not in self._columns}
        self._head = {"absent": absent, "facts": facts}
        self._end, seconds = round(end, 2), round(seconds, 3)
        line = _line(self._end, seconds, values, self._columns)
        self._kept.append(line)
        self._not_merged += 1
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
            self._append_event(line)
        else:
            self._more_events += 1

    def finish(self) -> None:
        """Writes what has not been merged yet. Where the other file has all of it, one file is enough: a sweep may have
        thousands of attempts that take less than ten minutes."""
        if self._merged_seconds > 0 and (self._merged_lines or self._event_lines):
            self._write_merged()

    def _append_event(self, line: bytes) -> None:
        self._event_lines.append(line)
        self._merged_file.append(self._header(), line, len(self._columns))

    def _write_merged(self) -> None:
        line = _line(self._end, round(self._merged_seconds, 3), self._merged.values(), self._columns)
        self._merged_lines.append(line)
        if self._is_stale or len(self._merged_lines) > MOST_MERGED:
            self._thin_out()
        else:
            self._merged_file.append(self._header(), line, len(self._columns))
        if self._more_events:
            more = {"event": "more", "time": self._end, "count": self._more_events}
            self._append_event(json.dumps(more).encode())
        self._merged, self._merged_seconds = Merged(), 0.0
        self._events = self._more_events = 0
        self._not_merged = 0

    def _thin_out(self) -> None:
        """Writes the file of merged rows anew, with the older ones as hours."""
        count = len(self._columns)
        older = [padded(line, count) for line in self._merged_lines[:-LEAST_MERGED]]
        self._merged_lines = self._merged_lines[-LEAST_MERGED:]
        self._hours += [_merge(older[at : at + HOUR], self._columns) for at in range(0, len(older), HOUR)]
        lines = [*self._event_lines, *self._hours, *self._merged_lines]
        self._is_stale = not self._merged_file.replace(self._header(), lines, count)

    def _header(self) -> bytes:
        head = {KEY: FORMAT, "node": self._node, "attempt": self._attempt, "columns": [*self._columns], **self._head}
        return json.dumps(head, separators=(",", ":"), default=str).encode()

    def _shorten(self) -> None:
        """Writes the file of the newest rows anew: half of what it may hold, and at least the rows that are not merged
        yet, and the one before, at which a reader finds where the merged ones end."""
        header = self._header()
        size = len(header) + sum(len(line) + 1 for line in self._kept)
        while size > LARGEST_RECENT // 2 and len(self._kept) > self._not_merged + 1:
            size -= len(self._kept.popleft()) + 1
        self._recent_file.replace(header, self._kept, len(self._columns))


def _is_name(column: str) -> bool:
    """Whether readers take it for a column. A part of it may be a phase that the training named."""
    return column.isprintable() and 0 < len(column) <= LONGEST_NAME


def _line(end: float, seconds: float, values: Mapping[str, float], columns: Mapping[str, None]) -> bytes:
    return f"[{end},{seconds},{','.join(_text(column, values.get(column)) for column in columns)}]".encode()


def _merge(lines: list[bytes], columns: Mapping[str, None]) -> bytes:
    """One row for several that follow each other."""
    merged, total = Merged(), 0.0
    for line in lines:
        end, seconds, *values = json.loads(line)
        merged.add(dict(zip(columns, values, strict=True)), seconds)
        total += seconds
    return _line(end, round(total, 3), merged.values(), columns)


def _text(column: str, value: float | None) -> str:
    """A value with five significant digits; a step is exact."""
    if value is None or not math.isfinite(value):
        return "null"
    if value == int(value) and (abs(value) < 10**_DIGITS or column.endswith(LAST)):
        return str(int(value))
    return f"{value:.{_DIGITS}g}".replace("e+", "e")
