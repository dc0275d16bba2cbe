"""Reads a recording of how many spot instances could be had: the JSON of github.com/skypilot-org/spot-traces, or a CSV.

The JSON has `metadata.gap_seconds` and `data`, a list of counts of instances that can be had, one in each gap. The CSV
has a line `time,available`, and rows in any order: seconds or an ISO 8601 time, and a count. A count that is missing
(null, an empty cell, no row where rows are regular) says nothing: no instance is taken to be there.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from slurmopt.errors import InputError, one_line, why_failed
from slurmopt.planning.spot.trace import Trace
from slurmopt.run_folder.access.files import read_whole
from slurmopt.units import human_seconds

_MOST = 100_000
"""Counts of a trace."""
_MOST_INSTANCES = 1_000_000
_LATEST = 1e11
"""Seconds; a time of more is of another unit."""
_REGULAR, _SAME = 0.9, 0.01
"""Rows are regular where at least that share of their distances is within that of the median; such rows are samples,
and a longer distance is a gap. Others are changes, and each holds until the next."""
_GAP = 1.5
"""Times the median distance."""
_CSV = "a header with time and available, the instances that can be had, and a row for each time"


@dataclass(frozen=True)
class Recording:
    """A trace, and what was assumed in reading it."""

    trace: Trace
    notes: tuple[str, ...]


def read(path: Path) -> Recording:
    """The recording in a file. Raises InputError: what is wrong, where, and what is valid."""
    place = one_line(str(path))
    try:
        text = read_whole(path).decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{place}: {why_failed(error)}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: is no text; valid: JSON of spot-traces, or CSV with {_CSV}") from error
    if not text.strip():
        raise InputError(f"{place}: is empty; valid: JSON of spot-traces, or CSV with {_CSV}")
    return _of_json(text, place) if text.lstrip()[0] in "{[" else _of_csv(text, place)


def _of_json(text: str, place: str) -> Recording:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: is no JSON: {one_line(str(error))[:200]}") from error
    metadata = content.get("metadata") if isinstance(content, dict) else None
    data = content.get("data") if isinstance(content, dict) else None
    if not isinstance(metadata, dict) or not isinstance(data, list):
        raise InputError(
            f"{place}: has no metadata or no data; valid: metadata.gap_seconds, and data, a list of counts"
        )
    gap = _finite(metadata.get("gap_seconds"))
    if gap is None or not 1 <= gap <= _LATEST:
        shown = one_line(repr(metadata.get("gap_seconds")))[:60]
        raise InputError(
            f"{place}: metadata.gap_seconds: {shown} is not valid; valid: seconds between two counts, from 1"
        )
    _check_length(len(data), place)
    counts = [None if each is None else _count(each, f"{place}: data[{at}]") for at, each in enumerate(data)]
    notes = _gap_notes([gap] * sum(count is None for count in counts))
    known = [count for count in counts if count is not None]
    if known and max(known) <= 1:
        share = sum(known) / len(known)
        notes.append(
            f"the trace has only 0 and 1, which does not show what 1 means: it is read as available ({share:.0%} of "
            "the time), as the README of spot-traces says"
        )
    times = tuple(at * gap for at in range(len(counts)))
    return Recording(Trace(times, tuple(count or 0 for count in counts), gap * len(counts)), tuple(notes))


def _of_csv(text: str, place: str) -> Recording:
    rows = _rows(text, place)
    _check_length(len(rows), place)
    notes = []
    if any(after[0] < before[0] for before, after in pairwise(rows)):
        notes.append("the rows were not in the order of time, and were sorted")
    rows.sort(key=lambda row: row[0])
    points: list[tuple[float, int | None]] = []
    for time, count, line in rows:
        if points and points[-1][0] == time:
            if points[-1][1] != count:
                raise InputError(f"{place}: line {line}: its time has another count on another line; valid: one count")
            continue
        points.append((time, count))
    _check_length(len(points), place)
    steps = [after[0] - before[0] for before, after in pairwise(points)]
    usual = median(steps)
    are_samples = sum(abs(step - usual) <= _SAME * usual for step in steps) >= _REGULAR * len(steps)
    begin, gaps = points[0][0], []
    times, counts = list[float](), list[int]()
    for (time, count), step in zip(points, [*steps, usual], strict=True):
        times.append(time - begin)
        counts.append(count or 0)
        if count is None:
            gaps.append(step)
        elif are_samples and step > _GAP * usual:
            gaps.append(step - usual)
            times.append(time - begin + usual)
            counts.append(0)
    notes += _gap_notes(gaps)
    return Recording(Trace(tuple(times), tuple(counts), points[-1][0] - begin + usual), tuple(notes))


def _rows(text: str, place: str) -> list[tuple[float, int | None, int]]:
    """Time, count and line of each row."""
    reader = csv.reader(text.splitlines())
    found = []
    try:
        header = [cell.strip().lower() for cell in next(reader)]
        if "time" not in header or "available" not in header:
            raise InputError(f"{place}: line 1: {','.join(header)[:60]!r} is not valid; valid: {_CSV}")
        if header.count("time") > 1 or header.count("available") > 1:
            raise InputError(f"{place}: line 1: has several columns of a name; valid: {_CSV}")
        at_time, at_count = header.index("time"), header.index("available")
        forms = set[bool]()
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            where = f"{place}: line {reader.line_num}"
            if len(row) <= max(at_time, at_count):
                raise InputError(f"{where}: has {len(row)} of {len(header)} cells; valid: {_CSV}")
            cell = row[at_count].strip()
            count = _count(_number(cell) if cell else None, f"{where}: available", cell) if cell else None
            time = row[at_time].strip()
            found.append((_time(time, where), count, reader.line_num))
            forms.add(_number(time) is None)
            if len(forms) > 1:
                raise InputError(f"{where}: time: {time[:60]!r} is of another form than before; valid: one form")
    except csv.Error as error:
        raise InputError(f"{place}: line {reader.line_num}: {one_line(str(error))}; valid: {_CSV}") from error
    return found


def _check_length(count: int, place: str) -> None:
    if not 2 <= count <= _MOST:
        raise InputError(f"{place}: has {count:,} counts; valid: 2 to {_MOST:,}")


def _count(value: Any, where: str, shown: str | None = None) -> int:
    number = _finite(value)
    if number is None or not 0 <= number <= _MOST_INSTANCES or number != int(number):
        text = one_line(repr(value) if shown is None else shown)[:60]
        raise InputError(f"{where}: {text} is not valid; valid: a whole number, 0 to {_MOST_INSTANCES:,}")
    return int(number)


def _time(cell: str, where: str) -> float:
    if (number := _finite(_number(cell))) is not None and abs(number) <= _LATEST:
        return number
    try:
        when = datetime.fromisoformat(cell.replace("Z", "+00:00"))
        return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        shown = cell[:60]
        raise InputError(
            f"{where}: time: {shown!r} is not valid; valid: seconds, or such as 2026-11-24T10:05:00"
        ) from None


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _finite(value: Any) -> float | None:
    """A number, if it is one and finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _gap_notes(gaps: Sequence[float] | Iterable[float]) -> list[str]:
    found = list(gaps)
    if not found:
        return []
    what = (
        f"{len(found)} gaps, {human_seconds(sum(found))} in all"
        if len(found) > 1
        else f"a gap of {human_seconds(found[0])}"
    )
    return [f"the trace has {what}: no instance is taken to be there"]
