"""The geometry of the pictures on a page: where bars, spans and curves lie. The templates draw them as SVG."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from slurmopt.report.run.run_report import AttemptRow, Line, Panel

WIDTH, HEIGHT = 1000.0, 100.0
"""The coordinates of a panel of curves; the browser stretches it."""
_MARGIN = 20.0
"""Above the top of the scale, for its label."""
MOST_POINTS = 400
_LATEST = 1e11
"""Seconds since the epoch: the year 5138. A clock that says more is no clock."""
_TICKS = (60, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 345600, 604800, 1209600, 2592000)


@dataclass(frozen=True)
class Tick:
    """A mark on the axis of time."""

    at: float
    """0 to 100, percent of the width."""
    label: str


@dataclass(frozen=True)
class Bar:
    """An attempt on the time line. Positions are percent of the width."""

    row: AttemptRow
    queued: float
    """Where its time in the queue begins."""
    start: float
    working: float
    """Where its first new step is done."""
    end: float


@dataclass(frozen=True)
class TimeLine:
    """Attempts over wall clock."""

    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]


def time_line(attempts: Sequence[AttemptRow], now: float) -> TimeLine | None:
    """The attempts whose start is known; None where there is none."""
    known = [(row, row.start) for row in attempts if row.start is not None and 0 <= row.start <= _LATEST]
    if not known:
        return None
    first = max(0.0, min(start - (row.queued or 0.0) for row, start in known))
    last = min(_LATEST, max(row.end if row.end is not None else now for row, _ in known))
    last = max(last, first + 1.0)

    def place(when: float) -> float:
        return round(100 * min(1.0, max(0.0, (when - first) / (last - first))), 3)

    bars = tuple(
        Bar(
            row,
            queued=place(start - (row.queued or 0.0)),
            start=place(start),
            working=place(start + (row.restart or 0.0)),
            end=place(row.end if row.end is not None else now),
        )
        for row, start in known
    )
    return TimeLine(bars, ticks(first, last))


def ticks(first: float, last: float, most: int = 8) -> tuple[Tick, ...]:
    """Marks at round times of the local clock, at most `most`, of which none is so near an end that it is cut."""
    span = max(1.0, last - first)
    step = next((step for step in _TICKS if span / step <= most), math.ceil(span / most / 86400) * 86400)
    offset = time.localtime(first).tm_gmtoff or 0
    found, when = [], math.ceil((first + offset) / step) * step - offset
    while when <= last:
        at = 100 * (when - first) / span
        if 2 <= at <= 96:
            found.append(Tick(round(at, 3), _label(when, step)))
        when += step
    return tuple(found)


def _label(when: float, step: int) -> str:
    """The day at midnight, else the time."""
    if step >= 86400:  # a change of the clock must not name the day before
        return time.strftime("%b %d", time.localtime(when + 3600))
    local = time.localtime(when)
    return time.strftime("%b %d" if local.tm_hour == local.tm_min == 0 else "%H:%M", local)


@dataclass(frozen=True)
class Curve:
    """A line of a panel."""

    label: str
    path: str
    """The `d` of an SVG path: a piece for each stretch without gaps."""


@dataclass(frozen=True)
class Picture:
    """A panel, ready to be drawn."""

    panel: Panel
    top: float
    """The value at the upper end."""
    curves: tuple[Curve, ...]


def picture(panel: Panel) -> Picture:
    """The curves of a panel that was thinned already."""
    values = [value for line in panel.lines for value in line.values if value is not None and math.isfinite(value)]
    highest = max(values, default=0.0)
    binary = 1024.0 ** int(math.log(highest, 1024)) if panel.unit == "bytes" and highest >= 1 else 1.0
    top = max(panel.top, highest) if panel.top is not None else binary * nice_top(highest / binary)
    span = max(1.0, panel.times[-1] - panel.times[0]) if panel.times else 1.0
    curves = tuple(
        Curve(line.label, _path([(time - panel.times[0]) / span for time in panel.times], line, top))
        for line in panel.lines
    )
    return Picture(panel, top, curves)


def _path(places: Sequence[float], line: Line, top: float) -> str:
    pieces, pen = [], "M"
    for place, value in zip(places, line.values, strict=True):
        if value is None:
            pen = "M"
            continue
        height = HEIGHT - (HEIGHT - _MARGIN) * min(1.0, max(0.0, value / top))
        pieces.append(f"{pen}{place * WIDTH:.1f} {height:.1f}")
        pen = "L"
    return "".join(pieces)


def nice_top(highest: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    if not (highest > 0 and math.isfinite(highest)):
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next((factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= highest), 1.0)


def thinned(panel: Panel, most: int = MOST_POINTS) -> Panel:
    """The panel with at most `most` points: means of as many neighbours. A gap stays a gap where it fills a point."""
    each = math.ceil(len(panel.times) / most)
    if each <= 1:
        return panel
    starts = range(0, len(panel.times), each)
    times = tuple(panel.times[min(start + each, len(panel.times)) - 1] for start in starts)
    lines = tuple(
        Line(line.label, tuple(_mean(line.values[start : start + each]) for start in starts)) for line in panel.lines
    )
    return Panel(panel.title, panel.unit, times, lines, panel.top)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
