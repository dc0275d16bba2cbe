"""How busy the GPUs of a running attempt are, from the newest rows of what its nodes measured. Reads only the ends of
files: a board shows many runs."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slurmopt.run_folder.access.files import read_end, read_start
from slurmopt.run_folder.json_values import number
from slurmopt.run_folder.layout import RunFolder

_MOST_NODES = 4
"""Nodes that are read; the others are likely to do the same."""
POINTS = 24
"""Rows that a curve shows."""
_FIRST_BYTES, _LAST_BYTES = 1 << 18, 1 << 16
_USE = re.compile(r"gpu\d{1,9}\.util")


class GpuUse:
    """The use of one attempt's GPUs. A file is read again only when it has changed."""

    def __init__(self, run: RunFolder, attempt: int) -> None:
        self._run, self.attempt = run, attempt
        self._nodes: list[str] = []
        self._times: dict[str, int] = {}
        self._columns: dict[str, list[int]] = {}
        self._values: dict[str, list[float | None]] = {}

    def values(self) -> tuple[float | None, ...]:
        """Means over the GPUs of the first nodes, in percent, oldest first; empty where nothing was measured."""
        if not self._nodes:
            with contextlib.suppress(OSError):
                self._nodes = self._run.nodes_with_series(self.attempt)[:_MOST_NODES]
        for node in self._nodes:
            with contextlib.suppress(OSError):
                self._read(node, self._run.recent_series(self.attempt, node))
        return _means([values for values in self._values.values() if values])

    def _read(self, node: str, path: Path) -> None:
        changed = path.stat().st_mtime_ns
        if changed == self._times.get(node):
            return
        self._times[node] = changed
        lines = read_end(path, _LAST_BYTES).splitlines()
        if header := next((line for line in reversed(lines) if line.startswith(b"{")), None):
            self._columns[node] = _uses(_parsed(header))
        elif node not in self._columns:
            self._columns[node] = _uses(_parsed(read_start(path, _FIRST_BYTES).partition(b"\n")[0]))
        rows = [_parsed(line) for line in lines[-POINTS:] if line.startswith(b"[")]
        self._values[node] = [_mean_of(row, self._columns[node]) for row in rows if isinstance(row, list)]


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):  # torn, or cut by the start of what was read
        return None


def _uses(header: Any) -> list[int]:
    """The places of the columns in a row, which begins with its end and its length."""
    columns = header.get("columns") if isinstance(header, dict) else None
    names = columns if isinstance(columns, list) else []
    return [at + 2 for at, name in enumerate(names) if isinstance(name, str) and _USE.fullmatch(name)]


def _mean_of(row: list[Any], places: Sequence[int]) -> float | None:
    return _mean([number(row[at]) if at < len(row) else None for at in places])


def _means(series: list[list[float | None]]) -> tuple[float | None, ...]:
    """One series of several, which end at the same time."""
    length = max(map(len, series), default=0)
    means = [_mean([values[at] for values in series if at >= -len(values)]) for at in range(-length, 0)]
    return tuple(means) if any(value is not None for value in means) else ()


def _mean(values: list[float | None]) -> float | None:
    known = [min(100.0, max(0.0, value)) for value in values if value is not None]
    return sum(known) / len(known) if known else None
