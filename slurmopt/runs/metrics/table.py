"""Formats the series of an attempt for people: a line for each quantity, over all nodes, GPUs and ranks."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from slurmopt.errors import one_line
from slurmopt.run_folder.series.series import NOT_MEASURED, Series
from slurmopt.run_folder.series.series_format import LAST, PEAK
from slurmopt.runs.metrics.query import AttemptSeries
from slurmopt.runs.text_table import table
from slurmopt.units import human_bytes, human_seconds

_NUMBERED = re.compile(r"(gpu|rank)\d+")
_DEVICES = ("net", "ib", "efa")
_ORDER = ("gpu", "rank", "node", *_DEVICES)
_UNITS = {
    "%": ("util", "mem_util"),
    "W": ("power",),
    "°C": ("temperature", "margin"),
    "MHz": ("clock_sm", "clock_mem"),
    "steps/s": ("steps",),
    "cores": ("cpu",),
    "tokens/s": ("tokens",),
    "samples/s": ("samples",),
    "s": ("ddp_backward", "ddp_exposed", "loader_fetch", "loader_fetch_cpu", "loader_collate", "loader_copy"),
    "bytes": ("memory", "memory_peak", "page_cache", "charged_peak"),
    "bytes/s": (
        *("rx", "tx", "pcie_rx", "pcie_tx", "nvlink_rx", "nvlink_tx"),
        *("io_read", "io_write", "disk_read", "disk_write"),
    ),
    "share": ("sm", "tensor", "dram", "occupancy", "fp64", "fp32", "fp16", "cpu_quota_throttled"),
}
_MOST_EVENTS = 20
_UNIT_OF = {name: unit for unit, names in _UNITS.items() for name in names}


@dataclass(frozen=True)
class _Measured:
    """One column of one node."""

    where: str
    value: float | None
    """Its mean; the last one of a step, the maximum of a peak. None where it has no values."""
    peak: float | None
    """The largest value of an interval."""
    why: str
    """Why there is none."""


def page(found: AttemptSeries, width: int | None) -> str:
    """The whole page."""
    quantities: dict[str, list[_Measured]] = {}
    span, events = _Span(), _Events()
    for series in found.nodes(detail=found.since is not None):
        span.add(series)
        events.add(series)
        for name, measured in _columns(series):
            quantities.setdefault(name, []).append(measured)
    header = ["", "mean", "lowest", "highest", "peak"]
    rows = [_row(name, quantities[name]) for name in sorted(quantities, key=_place)]
    label = one_line(f"{found.run.name}/{found.run.id}")
    head = f"{label}, attempt {found.attempt}, {span}"
    return "\n".join([head, "", table(header, rows, width) if rows else "no rows", *events.lines()])


@dataclass
class _Span:
    """The nodes, and the time of their rows."""

    nodes: list[str] = field(default_factory=list)
    start: float = float("inf")
    end: float = float("-inf")

    def add(self, series: Series) -> None:
        self.nodes.append(series.node)
        if series.times:
            self.start = min(self.start, series.times[0] - series.seconds[0])
            self.end = max(self.end, series.times[-1])

    def __str__(self) -> str:
        nodes = self.nodes[0] if len(self.nodes) == 1 else f"{len(self.nodes)} nodes"
        when = f": {human_seconds(self.end - self.start)} until {_moment(self.end)}" if self.end > self.start else ""
        return one_line(f"{nodes}{when}")


class _Events:
    """How often each event happened on each node."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, series: Series) -> None:
        for event in series.events:
            source = f" of source {event['source']}" if "source" in event else ""
            what = one_line(f"{series.node}: {event.get('event')}{source}")
            self._counts[what] = self._counts.get(what, 0) + 1

    def lines(self) -> list[str]:
        shown = [what if count == 1 else f"{what} ({count} times)" for what, count in sorted(self._counts.items())]
        more = [f"and {len(shown) - _MOST_EVENTS} more; --json has all"] if len(shown) > _MOST_EVENTS else []
        return ["", *shown[:_MOST_EVENTS], *more] if shown else []


def _moment(when: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
    except (OverflowError, ValueError, OSError):  # a file of somebody else's
        return "?"


def _columns(series: Series) -> Iterator[tuple[str, _Measured]]:
    """The quantity that each column of a node is of, and what was measured."""
    for column, values in series.values.items():
        known: list[float] = values  # type: ignore[assignment]
        if None in values:
            known = [value for value in values if value is not None]
        name, thing = _quantity(column)
        peak = max(known, default=None)
        value = known[-1] if known and column.endswith(LAST) else peak
        if known and not column.endswith((LAST, PEAK)):
            value = series.mean(column)
        why = series.absent.get(column, NOT_MEASURED)
        yield name, _Measured(f"{series.node} {thing}".strip(), value, peak, why)
    for column, why in series.absent.items():
        if column not in series.values:
            name, thing = _quantity(column)
            yield name, _Measured(f"{series.node} {thing}".strip(), None, None, why)


def _quantity(column: str) -> tuple[str, str]:
    """`gpu3.util` is the quantity gpu.util of gpu3; `net.eth0.rx` is net.rx of eth0."""
    first, _, rest = column.partition(".")
    if match := _NUMBERED.fullmatch(first):
        return f"{match[1]}.{rest}", first
    if first in _DEVICES and "." in rest:
        device, _, way = rest.rpartition(".")
        return f"{first}.{way}", device
    return column, ""


def _place(name: str) -> tuple[int, str]:
    first = name.partition(".")[0]
    return (_ORDER.index(first) if first in _ORDER else len(_ORDER)), ""


def _row(name: str, measured: list[_Measured]) -> list[str]:
    """What a quantity was: its mean, where the lowest and the highest mean were, and its peak; or why it is unknown."""
    known = [(one.value, one) for one in measured if one.value is not None]
    if not known:
        return [one_line(name), ", ".join(sorted({one.why for one in measured})), "", "", ""]
    lowest, highest = min(known, key=lambda one: one[0]), max(known, key=lambda one: one[0])
    peak = max((one.peak for _, one in known if one.peak is not None), default=None)
    mean = "" if name.endswith((LAST, PEAK)) else _text(name, sum(value for value, _ in known) / len(known))
    several = len(measured) > 1
    missing = len(measured) - len(known)
    cells = [
        _text(name, lowest[0]) + f" {lowest[1].where}" if several else "",
        _text(name, highest[0]) + f" {highest[1].where}" if several else "",
        "" if peak is None else _text(name, peak),
    ]
    if missing:
        whys = ", ".join(sorted({one.why for one in measured if one.value is None}))
        cells[-1] += f" ({missing} of {len(measured)} {whys})"
    return [one_line(name), mean, *map(one_line, cells)]


def _text(name: str, value: float) -> str:
    metric = name.partition(".")[2]
    unit = "share" if metric.startswith("throttle_") or metric.endswith(".share") else _UNIT_OF.get(metric, "")
    if unit == "share":
        return f"{100 * value:.3g} %"
    if unit in ("bytes", "bytes/s"):
        return human_bytes(value) + unit.removeprefix("bytes")
    if name.endswith(LAST):
        return f"{value:.0f}"
    return f"{value:.4g} {unit}".rstrip()
