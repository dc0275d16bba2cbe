"""What the GPUs of a running attempt do now, for `slurmopt status --watch`: a line for each, from the newest rows."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from dataclasses import dataclass

from slurmopt.errors import StorageError, one_line
from slurmopt.report.gather import gather
from slurmopt.report.output.terminal import StyledLine
from slurmopt.report.run import diagnoses, measures, words
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.json_values import number, text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series import series as node_series
from slurmopt.run_folder.series.series import Series
from slurmopt.runs.sparkline import sparkline
from slurmopt.units import human_bytes, human_count

_MOST_NODES = 24
"""Nodes that are read; the others are counted."""
_POINTS = 24
"""Rows that a sparkline shows."""
_LARGEST = 8 << 20
"""Bytes of a file of newest rows; larger ones are not read at every redraw."""
_EVERY, _PATIENCE = 30.0, 50.0
"""Seconds between two looks for findings; and the multiple of what a look takes."""
_STALE = 120.0
"""Seconds after which the newest row is no longer what a GPU does now."""
_Identity = tuple[int, int, int]


@dataclass
class _Kept:
    identity: _Identity
    series: Series | None


class Live:
    """The newest rows of one attempt's nodes. A file is read again only when it has changed."""

    def __init__(self, run: RunFolder, attempt: int) -> None:
        self._run, self.attempt = run, attempt
        self._kept: dict[str, _Kept] = {}

    def lines(self, now: float, most: int | None = None) -> list[StyledLine]:
        """A line for each GPU, or for each node where these would be more than `most`; [] without series."""
        names = self._run.nodes_with_series(self.attempt)
        found = [series for name in names[:_MOST_NODES] if (series := self._read(name)) is not None]
        found = [series for series in found if series.times and now - series.times[-1] < _STALE]
        if not found:
            return []
        most = most or max(8, shutil.get_terminal_size().lines - 24)
        gpus = sum(max(1, len(measures.gpus_of(series))) for series in found)
        rows = [row for series in found for row in (_of_gpus(series) if gpus <= most else [_of_node(series)])]
        lines = _aligned(rows[:most])
        left = len(names) - len(found[:most] if gpus > most else found)
        return [*lines, [(f"  and {left:,} more nodes", "bright_black")]] if left > 0 else lines

    def _read(self, node: str) -> Series | None:
        path = self._run.recent_series(self.attempt, node)
        try:
            facts = os.stat(held(path))
        except OSError:
            return None
        identity = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
        kept = self._kept.get(node)
        if kept is None or kept.identity != identity:
            series = None
            if facts.st_size <= _LARGEST:
                with contextlib.suppress(OSError, StorageError):
                    series = node_series.read(path)
            kept = self._kept[node] = _Kept(identity, series)
        return kept.series


def _of_gpus(series: Series) -> list[list[str]]:
    gpus = measures.gpus_of(series)
    if not gpus:
        return [_of_node(series)]
    return [_row(series, f"GPU {at}", [f"gpu{at}"], number(gpu.get("memory"))) for at, gpu in enumerate(gpus)]


def _of_node(series: Series) -> list[str]:
    """All GPUs of a node in one line; without GPUs its CPUs and memory."""
    gpus = measures.gpus_of(series)
    if gpus:
        return _row(series, f"{len(gpus)} GPUs", [f"gpu{at}" for at in range(len(gpus))], number(gpus[0].get("memory")))
    cores, most = _last(series, ["node"], "cpu"), number(series.facts.get("cpus"))
    memory = _last(series, ["node"], "memory")
    return [
        one_line(series.node), "CPU", _curve(_recent(series, ["node"], "cpu"), most),
        _shown(cores, lambda value: f"{value:.1f} cores"), _shown(memory, human_bytes), "", "", _steps(series),
    ]  # fmt: skip


def _row(series: Series, name: str, places: list[str], most: float | None) -> list[str]:
    of_most = f" of {human_bytes(most)}" if most else ""
    return [
        one_line(series.node), name, _curve(_recent(series, places, "util"), 100.0),
        _shown(_last(series, places, "util"), lambda value: f"{value:.0f} %"),
        _shown(_last(series, places, "memory"), lambda value: human_bytes(value) + of_most),
        _shown(_last(series, places, "power"), lambda value: f"{value:.0f} W"),
        _shown(_last(series, places, "temperature"), lambda value: f"{value:.0f} °C"),
        _steps(series),
    ]  # fmt: skip


def _steps(series: Series) -> str:
    ranks = sorted({column.partition(".")[0] for column in series.columns("steps")})
    return _shown(_last(series, ranks, "steps"), lambda value: f"{human_count(value)} steps/s")


def _shown(value: float | str, how: object) -> str:
    return value if isinstance(value, str) else str(how(value))  # type: ignore[operator]


def _last(series: Series, places: list[str], what: str) -> float | str:
    """The newest value, a mean over `places`; else why there is none."""
    values = _recent(series, places, what)
    if values and values[-1] is not None:
        return values[-1]
    return next((why for place in places if (why := text(series.absent.get(f"{place}.{what}")))), "-")


def _recent(series: Series, places: list[str], what: str) -> list[float | None]:
    """The newest values, means over `places`."""
    columns = [found[-_POINTS:] for place in places if (found := series.values.get(f"{place}.{what}"))]
    means: list[float | None] = []
    for row in zip(*columns, strict=True):
        known = [value for value in row if value is not None]
        means.append(sum(known) / len(known) if known else None)
    return means


def _curve(values: list[float | None], most: float | None) -> str:
    """The values from 0 to `most` (by default the largest), the newest on the right."""
    return sparkline(values, 0.0, most or None).rjust(_POINTS)


def _aligned(rows: list[list[str]]) -> list[StyledLine]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    styles = ("", "", "cyan", "bold", "", "", "", "green")
    left = (0, 1, 2)
    return [
        [("  ", "")]
        + [
            (f"{cell.ljust(size) if column in left else cell.rjust(size)}  ", style)
            for column, (cell, size, style) in enumerate(zip(row, widths, styles, strict=True))
            if size
        ]
        for row in rows
    ]


class Moment:
    """The finding that costs most now. It is drawn anew every half a minute, and less often where that takes long."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._due, self._line = float("-inf"), list[StyledLine]()

    def lines(self, now: float) -> list[StyledLine]:
        """Its line; [] where there is no finding, and for runs with too much to read."""
        if now >= self._due:
            began = time.monotonic()
            self._line = self._drawn()
            self._due = now + max(_EVERY, _PATIENCE * (time.monotonic() - began))
        return self._line

    def _drawn(self) -> list[StyledLine]:
        try:
            if diagnoses.series_bytes(self._run) > _LARGEST:
                return []
            record = gather(self._run)
        except (OSError, StorageError):  # the page of the status has told
            return []
        found = diagnoses.newest(record)
        if not found.findings:
            return []
        first = found.findings[0]
        costs = "" if first.cost is None else f" ({words.device_time(first.cost * 3600, found.unit)} so far)"
        return [[("  ", ""), ("finding  ", "bold yellow"), (one_line(first.summary), ""), (costs, "bright_black")]]
