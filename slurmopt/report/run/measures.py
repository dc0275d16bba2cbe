"""What the samplers measured, over all attempts: readings of each node, use of what was allocated, curves."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import mul

from slurmopt.report.run import words
from slurmopt.report.run.run_report import COLUMNS, NodeRow, Reading, Usage
from slurmopt.run_folder.json_values import number
from slurmopt.run_folder.series.series import NOT_MEASURED, Series
from slurmopt.units import human_bytes

_FEWEST = 4
"""Nodes from which on one can be odd."""
_FAR, _SHARE = 5.0, 0.1
"""An odd node is so many scaled median deviations and this share of the median away from it."""
_MAD = 1.4826
"""Median absolute deviation → standard deviation, of a normal distribution."""


class NodeSeries:
    """The series of one node over all attempts."""

    def __init__(self, node: str, series: Iterable[Series]) -> None:
        self.node = node
        self.series = list(series)
        self.gpus = max((len(gpus_of(one)) for one in self.series), default=0)

    @cached_property
    def readings(self) -> dict[str, Reading]:
        """A key of COLUMNS → its reading; of a node without GPUs those of GPUs are missing."""
        return {key: read(self) for key, read in _READINGS.items() if self.gpus or key not in _OF_GPUS}

    def columns(self, kind: str) -> Iterable[tuple[Series, str]]:
        """The columns of a kind: `gpu.util` finds gpu0.util, gpu1.util of each series."""
        return self._columns.get(kind, ())

    @cached_property
    def _columns(self) -> dict[str, list[tuple[Series, str]]]:
        """Kind → its columns; looked up for each reading and curve, of thousands of columns."""
        found: dict[str, list[tuple[Series, str]]] = {}
        for series in self.series:
            for column in series.values:
                of, _, ending = column.partition(".")
                found.setdefault(f"{of.rstrip('0123456789')}.{ending}", []).append((series, column))
        return found

    def mean(self, kind: str, scale: float = 1.0) -> Reading:
        """The mean over time, and over all GPUs or ranks that have such a column."""
        total = weight = 0.0
        for series, column in self.columns(kind):
            sums = weighted(series.values[column], series.seconds)
            total, weight = total + sums[0], weight + sums[1]
        return scale * total / weight if weight else self.absent(kind)

    def peak(self, *kinds: str) -> Reading:
        """The largest value of the first of the columns that there is."""
        for kind in kinds:
            values = [value for series, column in self.columns(kind) for value in series.values[column]]
            known = [value for value in values if value is not None]
            if known:
                return max(known)
        return self.absent(kinds[0])

    def total(self, kinds: Sequence[str]) -> Reading:
        """The sum of the means of several columns, of those that were measured."""
        found = [self.mean(kind) for kind in kinds]
        known = [value for value in found if not isinstance(value, str)]
        return sum(known) if known else found[0]

    def absent(self, kind: str) -> str:
        """Why there is no value."""
        of, _, ending = kind.partition(".")
        for series in reversed(self.series):
            for column, why in series.absent.items():
                if column.endswith(f".{ending}") and column[: -len(ending) - 1].rstrip("0123456789") == of:
                    return why
        return NOT_MEASURED

    def fact(self, name: str) -> float | None:
        """A number of the header, such as `cpus`."""
        return next(
            (found for one in reversed(self.series) if (found := number(one.facts.get(name))) is not None), None
        )

    def of_gpus(self, name: str) -> float | None:
        """The largest such number among the facts of its GPUs, such as `memory`."""
        found = [number(gpu.get(name)) for one in self.series for gpu in gpus_of(one)]
        return max((value for value in found if value is not None), default=None)


def gpus_of(series: Series) -> list[dict[str, object]]:
    """The GPUs that the header of a series tells of."""
    gpus = series.facts.get("gpus")
    return [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []


def weighted(values: Sequence[float | None], seconds: Sequence[float]) -> tuple[float, float]:
    """The sum of values times seconds, and the seconds in which there were values."""
    if None not in values:
        return sum(map(mul, values, seconds)), sum(seconds)
    known = [(value * weight, weight) for value, weight in zip(values, seconds, strict=True) if value is not None]
    return sum(value for value, _ in known), sum(weight for _, weight in known)


_THROTTLED = ("gpu.throttle_thermal", "gpu.throttle_hw_thermal", "gpu.throttle_brake")
"""At full load a GPU is held back by its power limit: that alone is no trouble."""

_READINGS: dict[str, Callable[[NodeSeries], Reading]] = {
    "util": lambda node: node.mean("gpu.util", 0.01),
    "sm": lambda node: node.mean("gpu.sm"),
    "tensor": lambda node: node.mean("gpu.tensor"),
    "memory": lambda node: node.peak("gpu.memory_peak", "gpu.memory"),
    "power": lambda node: node.mean("gpu.power"),
    "temperature": lambda node: node.peak("gpu.temperature"),
    "throttled": lambda node: node.total(_THROTTLED),
    "input": lambda node: node.mean("rank.input.share"),
    "cpu": lambda node: node.mean("node.cpu"),
    "host_memory": lambda node: node.peak("node.memory_peak", "node.memory"),
    "step_rate": lambda node: node.mean("rank.steps"),
}
"""Key of COLUMNS → its reading."""
_OF_GPUS = ("util", "sm", "tensor", "memory", "power", "temperature", "throttled")


def with_remarks(rows: list[NodeRow], named: Mapping[str, str]) -> list[NodeRow]:
    """The rows, the odd ones first, with what is odd about them. `named`: node → what is known of it already."""
    judged = [(*_oddity(row, rows), row) for row in rows]
    judged.sort(key=lambda item: (item[2].node not in named, -item[0], _natural(item[2].node)))
    return [
        NodeRow(row.node, row.devices, row.ranks, row.readings, "; ".join(filter(None, (named.get(row.node, ""), why))))
        for _, why, row in judged
    ]


def _oddity(row: NodeRow, rows: list[NodeRow]) -> tuple[float, str]:
    """How far the node is from the others in what it differs most, and what that is; 0 where it is one of them."""
    found = [(_distance(row, key, rows), key) for key in row.readings]
    far, key = max(found, default=(0.0, ""))
    if far <= 0:
        return 0.0, ""
    middle = statistics.median(_known(rows, key))
    return far, f"{COLUMNS[key].title} {words.reading(row.readings[key], key)} (median {words.reading(middle, key)})"


def _distance(row: NodeRow, key: str, rows: list[NodeRow]) -> float:
    value, known = row.readings[key], _known(rows, key)
    if isinstance(value, str) or len(known) < _FEWEST:
        return 0.0
    middle = statistics.median(known)
    deviation = _MAD * statistics.median([abs(other - middle) for other in known])
    signed = value - middle
    if {"low": signed > 0, "high": signed < 0}.get(COLUMNS[key].worse, False):
        return 0.0
    limit = max(_FAR * deviation, _SHARE * abs(middle), 0.02 if COLUMNS[key].unit == "percent" else 0.0)
    return abs(signed) / limit if limit and abs(signed) > limit else 0.0


def _known(rows: list[NodeRow], key: str) -> list[float]:
    return [value for row in rows if not isinstance(value := row.readings.get(key, NOT_MEASURED), str)]


def _natural(name: str) -> tuple[str, int, str]:
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :][:18]
    return stem, int(digits or 0), name


def usage(nodes: list[NodeSeries]) -> list[Usage]:
    """How much of GPUs, memory and CPUs was used, as bars."""
    with_gpus = [node for node in nodes if node.gpus]
    found: list[Usage] = []
    if with_gpus:
        found += [
            _share("GPU activity", with_gpus, "util", "in kernels, of the time"),
            _share("SM activity", with_gpus, "sm", "of the multiprocessors, mean"),
            _share("tensor activity", with_gpus, "tensor", "of the tensor cores, mean"),
            _of("GPU memory", "memory", lambda node: node.of_gpus("memory"), with_gpus, human_bytes, max),
            _of("GPU power", "power", lambda node: node.of_gpus("power_limit"), with_gpus, _watts, _middle),
        ]
    if nodes:
        found.append(_of("CPU", "cpu", lambda node: node.fact("cpus"), nodes, _cores, _middle))
        found.append(_of("host memory", "host_memory", _host_memory, nodes, human_bytes, max))
    return found


def _share(name: str, nodes: list[NodeSeries], key: str, of: str) -> Usage:
    found = [node.readings[key] for node in nodes]
    known = [value for value in found if not isinstance(value, str)]
    if not known:
        return Usage(name, found[0], str(found[0]))
    mean = sum(known) / len(known)
    return Usage(name, mean, f"{words.percent(mean)} {of}")


def _of(
    name: str,
    key: str,
    most: Callable[[NodeSeries], float | None],
    nodes: list[NodeSeries],
    shown: Callable[[float], str],
    of_all: Callable[[list[float]], float],
) -> Usage:
    """A reading of what a node or GPU has, over all nodes; `of_all` is the largest of a peak, the mean of a mean."""
    found = [node.readings[key] for node in nodes]
    known = [value for value in found if not isinstance(value, str)]
    if not known:
        return Usage(name, found[0], str(found[0]))
    value, limits = of_all(known), [limit for node in nodes if (limit := most(node))]
    how = "at most" if of_all is max else "mean"
    if not limits:
        return Usage(name, NOT_MEASURED, f"{shown(value)} {how}; of how much is not known")
    return Usage(name, value / max(limits), f"{shown(value)} {how}, of {shown(max(limits))}")


def _middle(values: list[float]) -> float:
    return sum(values) / len(values)


def _watts(value: float) -> str:
    return f"{value:.0f} W"


def _cores(value: float) -> str:
    return f"{value:.1f} cores" if value < 10 else f"{value:.0f} cores"


def _host_memory(node: NodeSeries) -> float | None:
    return node.fact("memory_limit") or node.fact("host_memory")
