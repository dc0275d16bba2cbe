"""Reads the series of a node: what its sampler measured during an attempt, as rows of JSON.

An attempt has two files for each node in `series/attempt-K/`:

    NODE.recent.jsonl   a row for each interval (10 s by default); only the newest rows are kept
    NODE.jsonl          a row for each ten minutes: exact means of the rows of the other file; all are kept

Each line is a JSON value:

    {"slurmopt_series": 1, "node": …, "attempt": …, "columns": […], "absent": {column: why}, "facts": {…}}
                        a header: the first line, and again where the columns change
    [end, seconds, v1, v2, …]
                        a row: when the interval ended (seconds since the epoch), its length, and the value of each
                        column; null where a value was not measured in this interval
    {"event": word, "time": …, …}
                        an event, such as an XID error of a GPU; in NODE.jsonl alone

A value is the mean of its column over the interval, so that means weighted with their seconds merge rows exactly. Two
kinds of columns differ: the maximum is taken where the name ends in `_peak`, the last value where it ends in
`.step`. Counters are written as rates per second.

`absent` tells why a column that the hardware might have has no values: `not supported`, `not allowed`, `not measured`.
A zero is a measured zero.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurmopt.errors import StorageError
from slurmopt.run_folder import events
from slurmopt.run_folder.json_values import as_int, number, text

FORMAT = 1
KEY = "slurmopt_series"
NOT_SUPPORTED, NOT_ALLOWED, NOT_MEASURED = "not supported", "not allowed", "not measured"
ABSENT = (NOT_SUPPORTED, NOT_ALLOWED, NOT_MEASURED)
PEAK, LAST = "_peak", ".step"
_MOST_COLUMNS = 20_000


@dataclass
class Series:
    """What was measured on one node during one attempt. All lists in `values` have the length of `times`."""

    node: str
    attempt: int
    times: list[float] = field(default_factory=list)
    """When each interval ended: seconds since the epoch, rising."""
    seconds: list[float] = field(default_factory=list)
    """The length of each interval."""
    values: dict[str, list[float | None]] = field(default_factory=dict)
    """Column → its value in each interval; None where it was not measured."""
    absent: dict[str, str] = field(default_factory=dict)
    """Column → why it has no values: one of ABSENT."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the sampler found on the node, such as `gpus`: a list of index, uuid, name, memory (bytes) and power_limit
    (watts)."""
    events: list[dict[str, Any]] = field(default_factory=list)

    def columns(self, ending: str) -> list[str]:
        """The columns whose name after the first dot is `ending`: `power` finds gpu0.power, gpu1.power."""
        return [name for name in self.values if name.partition(".")[2] == ending]

    def mean(self, column: str, since: float = float("-inf"), until: float = float("inf")) -> float | None:
        """The mean of a column, weighted by time, of the intervals that end within (since, until]; None without any."""
        total = weight = 0.0
        for time, seconds, value in zip(self.times, self.seconds, self.values.get(column, ()), strict=False):
            if value is not None and since < time <= until:
                total += value * seconds
                weight += seconds
        return total / weight if weight else None


def merge(column: str, values: Iterable[float | None], seconds: Iterable[float]) -> float | None:
    """One value for several intervals of a column; None where it was measured in none of them."""
    known = [(value, weight) for value, weight in zip(values, seconds, strict=True) if value is not None]
    if not known:
        return None
    if column.endswith(PEAK):
        return max(value for value, _ in known)
    if column.endswith(LAST):
        return known[-1][0]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else known[-1][0]


def read(path: Path, recent: Path | None = None) -> Series | None:
    """The series of one node: the rows in `path`, then those of `recent` that are newer. None where there is neither.

    Lines that are torn or that no sampler writes are skipped. StorageError where a newer version of slurmopt wrote it;
    OSError.
    """
    series: Series | None = None
    for file in (path, recent):
        if file is not None:
            series = _add(series, events.lines(file), file)
    return series


def _add(series: Series | None, lines: Iterable[bytes], file: Path) -> Series | None:
    columns: list[str] = []
    rows: list[list[Any]] = []
    last = series.times[-1] if series is not None and series.times else float("-inf")
    for line in lines:
        value = None
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
        if isinstance(value, list) and len(value) == len(columns) + 2 and columns:
            if isinstance(value[0], (int, float)) and value[0] > last and number(value[1]) and number(value[0]):
                rows.append(value)
                last = value[0]
        elif isinstance(value, dict) and KEY in value:
            _append(series, columns, rows)
            series, columns, rows = _header(series, value, file), _columns(value), []
        elif isinstance(value, dict) and series is not None and text(value.get("event")) and number(value.get("time")):
            series.events.append(value)
    _append(series, columns, rows)
    return series


def _header(series: Series | None, value: dict[str, Any], file: Path) -> Series:
    written = as_int(value[KEY])
    if written is None or written > FORMAT:
        raise StorageError(
            f"{file}: its format is {text(value[KEY])}, and this slurmopt reads up to {FORMAT}: update slurmopt"
        )
    if series is None:
        series = Series(text(value.get("node")) or "?", as_int(value.get("attempt")) or 0)
    absent, facts = value.get("absent"), value.get("facts")
    if isinstance(absent, dict):
        series.absent = {str(name): str(why) for name, why in absent.items() if why in ABSENT}
    if isinstance(facts, dict):
        series.facts = facts
    return series


def _columns(value: dict[str, Any]) -> list[str]:
    columns = value.get("columns")
    if not isinstance(columns, list) or len(columns) > _MOST_COLUMNS:
        return []
    return [str(name) for name in columns]


def _append(series: Series | None, columns: list[str], rows: list[list[Any]]) -> None:
    """Adds the rows below one header; a value of a wrong type counts as not measured."""
    if series is None or not rows:
        return
    before = len(series.times)
    by_column = list(zip(*rows, strict=True))
    series.times += map(float, by_column[0])
    series.seconds += map(float, by_column[1])
    for name, values in zip(columns, by_column[2:], strict=True):
        series.values.setdefault(name, [None] * before).extend(map(number, values))
    for values_of in series.values.values():
        values_of += [None] * (len(series.times) - len(values_of))
