"""Reads the series of a node: what its sampler measured during an attempt, as rows of JSON.

An attempt has two files for each node in `series/attempt-K/`:

    NODE.recent.jsonl   a row for each interval (10 s by default); only the newest rows are kept
    NODE.jsonl          a row for each ten minutes: exact means of the rows of the other file; rows that are older than
                        16 to 32 hours are merged again, to a row for each hour; all are kept. It does not exist for an
                        attempt of less than ten minutes without events

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

The end of a row of NODE.jsonl is the end of the last row of NODE.recent.jsonl that it contains, to the digit. Lengths
are of a monotonic clock: a row that starts before its predecessor ended shows that the node's clock was set back, and
`read` moves the rows before it by the difference.
"""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import mul
from pathlib import Path
from typing import Any

from slurmopt.run_folder.access.files import TooLarge, read_end, read_start
from slurmopt.run_folder.series.series_file import MOST_VALUES, SeriesFile, Table, end_of
from slurmopt.run_folder.series.series_format import (
    ABSENT,
    FORMAT,
    KEY,
    LAST,
    NOT_ALLOWED,
    NOT_MEASURED,
    NOT_SUPPORTED,
    PEAK,
    SHARE,
)

__all__ = [
    "ABSENT",
    "FORMAT",
    "KEY",
    "NOT_ALLOWED",
    "NOT_MEASURED",
    "NOT_SUPPORTED",
    "Series",
    "merge",
    "newest",
    "read",
]

_SET_BACK = 1.0
"""Seconds by which a row starts before the end of its predecessor where the clock was set back, at the least."""
_FIRST_BYTES = 1 << 18
"""At the start of a file, in which its first header is."""
_LAST_BYTES = 1 << 18


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
        values = self.values.get(column, [])
        if not self.times or (since < self.times[0] and until >= self.times[-1] and None not in values):
            weight = sum(self.seconds) if values else 0.0
            return sum(map(mul, values, self.seconds)) / weight if weight else None
        total = weight = 0.0
        for time, seconds, value in zip(self.times, self.seconds, values, strict=False):
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


def read(
    path: Path,
    recent: Path | None = None,
    detail: bool = False,
    since: float | None = None,
    wanted: Callable[[str], bool] | None = None,
) -> Series | None:
    """The series of one node; None where there is neither file.

    It has the rows of `path`, then those of `recent` that are newer. With `detail` it has all rows of `recent`, and
    those of `path` for the time before them. With `since` it has only rows that end after that time, and with `wanted`
    only these columns.

    Lines that are torn or that no sampler writes are skipped. StorageError where a newer version of slurmopt wrote it;
    OSError; TooLarge where it is larger than any series.
    """
    merged, fine = SeriesFile(path), None if recent is None else SeriesFile(recent)
    header = (fine and fine.header) or merged.header
    if header is None:
        return None
    series = Series(header.node, header.attempt, absent=header.absent, facts=header.facts)
    series.events = [*merged.events, *(fine.events if fine is not None else ())]
    for table in _tables(merged, fine, detail, since, wanted):
        if _values_with(series, table) > MOST_VALUES:
            raise TooLarge(errno.EFBIG, f"it has more than {MOST_VALUES:,} values", str(path))
        _append(series, table)
    _straighten(series, since)
    _fill_shares(series)
    return series


def _tables(
    merged: SeriesFile,
    fine: SeriesFile | None,
    detail: bool,
    since: float | None,
    wanted: Callable[[str], bool] | None,
) -> list[Table]:
    """The rows to take, oldest first. Some may be older than `since`."""
    if fine is None:
        return list(merged.tables(since, wanted))
    if not detail:
        tables = list(merged.tables(since, wanted))
        return [*tables, *fine.tables(tables[-1].ends[-1] if tables else since, wanted)]
    if since is not None and fine.first_end <= since:
        return list(fine.tables(since, wanted))
    return _joined(list(merged.tables(None, wanted)), list(fine.tables(None, wanted)))


def newest(path: Path, recent: Path) -> float | None:
    """When the newest row of a node ended; None where there is none. Reads only the end of a file. OSError."""
    for file in (recent, path):
        with contextlib.suppress(FileNotFoundError):
            for line in reversed(read_end(file, _LAST_BYTES).splitlines()):
                if line.startswith(b"[") and (end := end_of(line)) > float("-inf"):
                    return end
    return None


def first_facts(path: Path, recent: Path) -> dict[str, Any] | None:
    """The facts of the first header of a node, such as its GPUs; None where there is none. Reads only the start of a
    file."""
    for file in (path, recent):
        with contextlib.suppress(OSError, ValueError, RecursionError):
            header = json.loads(read_start(file, _FIRST_BYTES).partition(b"\n")[0])
            if isinstance(header, dict) and KEY in header and isinstance(header.get("facts"), dict):
                facts: dict[str, Any] = header["facts"]
                return facts
    return None


def columns(path: Path, recent: Path) -> tuple[list[str], dict[str, str]]:
    """The columns that the rows of a node have, and those without values with the reason. StorageError and OSError as
    `read`."""
    files = [SeriesFile(path), SeriesFile(recent)]
    headers = [file.header for file in files if file.header is not None]
    return list(dict.fromkeys(name for file in files for name in file.columns)), headers[-1].absent if headers else {}


def _joined(merged: list[Table], fine: list[Table]) -> list[Table]:
    """The merged rows before the fine ones, and the fine rows after those. They meet where a row of both ends at the
    same time, whatever the clock did; where they meet nowhere, the merged ones come first."""
    lengths = [seconds for table in fine for seconds in table.seconds]
    places = {end: at for at, end in enumerate(end for table in fine for end in table.ends)}
    for number, table in enumerate(merged):
        for row, end in enumerate(table.ends):
            if end in places:
                start = _covering(lengths, places[end], table.seconds[row])
                row, first = (row + 1, places[end] + 1) if start is None else (row, start)
                return [*merged[:number], table.part(slice(row)), *_from(fine, first)]
    return [*merged, *fine]


def _covering(lengths: list[float], last: int, seconds: float) -> int | None:
    """From which fine row on they cover a merged row of so many seconds that ends with row `last`; None where the first
    of them are gone."""
    for at in range(last, -1, -1):
        seconds -= lengths[at]
        if seconds < lengths[at] / 2:
            return at
    return None


def _from(tables: list[Table], first: int) -> list[Table]:
    """All rows from that number on."""
    left: list[Table] = []
    for table in tables:
        left.append(table.part(slice(max(0, first), None)))
        first -= len(table.ends)
    return left


def _values_with(series: Series, table: Table) -> int:
    """How many values the series has with these rows, the missing ones too: thousands of headers may each name another
    column."""
    columns = len(series.values) + sum(name not in series.values for name in table.columns)
    return columns * (len(series.times) + len(table.ends))


def _append(series: Series, table: Table) -> None:
    """Adds rows to the series."""
    before = len(series.times)
    series.times += table.ends
    series.seconds += table.seconds
    for name, values in zip(table.columns, table.values, strict=True):
        if not before:
            series.values[name] = values
        elif name in series.values:
            series.values[name] += values
        else:
            series.values[name] = [*[None] * before, *values]
    for known in series.values.values():
        if len(known) < len(series.times):
            known += [None] * (len(series.times) - len(known))


def _fill_shares(series: Series) -> None:
    """Where a rank told any share, an activity without one took no time: the rank had not begun it."""
    of_rank: dict[str, list[str]] = {}
    for name in series.values:
        if name.endswith(SHARE):
            of_rank.setdefault(name.partition(".")[0], []).append(name)
    for names in of_rank.values():
        late = [name for name in names if None in series.values[name]]
        if late and len(names) > 1:
            rows = zip(*(series.values[name] for name in names), strict=True)
            told = [any(value is not None for value in row) for row in rows]
            for name in late:
                values = zip(series.values[name], told, strict=True)
                series.values[name] = [0.0 if value is None and known else value for value, known in values]


def _straighten(series: Series, since: float | None) -> None:
    """Moves the rows before each point where the clock was set back. Leaves out rows that do not follow their
    predecessors even so, and those that end before `since`."""
    times, shift, next_start = series.times, 0.0, float("inf")
    for at in reversed(range(len(times))):
        if (gap := next_start - times[at]) < -_SET_BACK:
            shift += gap
        next_start = times[at] - series.seconds[at]
        times[at] += shift
    last, keep = float("-inf") if since is None else since, []
    for at, time in enumerate(times):
        if time > last:
            keep.append(at)
            last = time
    if len(keep) < len(times):
        series.times, series.seconds = [times[at] for at in keep], [series.seconds[at] for at in keep]
        series.values = {name: [values[at] for at in keep] for name, values in series.values.items()}
