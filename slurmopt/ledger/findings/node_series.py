"""The series of one node as evidence: what its GPUs, its CPUs and its ranks did while steps were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import mul
from statistics import median
from typing import Any

from slurmopt.ledger.findings.evidence import GpuEvidence, NodeEvidence, Points, RankEvidence
from slurmopt.ledger.findings.plausible import amount, plausible
from slurmopt.run_folder.json_values import as_int, text
from slurmopt.run_folder.series.series import Series

Column = Sequence[float | None]
STEPPING = ("running", "input", "communication")
"""The activities of a rank that makes steps."""
_MOST_POINTS = 240
"""Of a curve. More make the robust slopes slower, and no better."""
_LEAST_SHARE = 0.5
"""An interval tells a step rate only if at least this share of it was spent on steps."""
_READS = ("io_read", "disk_read")
_FEWEST_INTERVALS = 3
"""With steps: of fewer, one that has the reads of the start is no outlier."""


class NodeSeries:
    """The series of one node, with the weight of each interval: the seconds of it in which steps were made."""

    def __init__(self, series: Series, since: float, until: float) -> None:
        self._series = replace(series, values=plausible(series.values))
        self._since = [
            max(0.0, min(seconds, time - since, until - time + seconds))
            for time, seconds in zip(series.times, series.seconds, strict=True)
        ]
        self._weights = list(map(mul, self._since, self._shares()))
        self._inside = [weight > 0 for weight in self._weights]
        self._groups = self._by_part()

    def evidence(self) -> NodeEvidence:
        facts = self._series.facts
        means, peaks = self._of("node")
        means |= self._traffic() | self._sustained_reads(means)
        if sum(self._inside) < _FEWEST_INTERVALS:
            means = {name: value for name, value in means.items() if name not in _READS}
        limit = amount(facts.get("memory_limit")) or amount(facts.get("host_memory"))
        full = [peaks[name] for name in ("memory_peak", "memory") if name in peaks]
        return NodeEvidence(
            node=self._series.node,
            cpus=amount(facts.get("cpus")),
            memory_limit=limit,
            memory_full=max(full, default=None),
            means=means,
            peaks=peaks,
            absent=self._absent("node"),
            memory_points=self.points("node.memory"),
        )

    def _sustained_reads(self, means: Mapping[str, float]) -> dict[str, float]:
        """Bytes per second that are read in at least half of the intervals: what a start reads, such as libraries, is
        none of the loader's, and ends in the first interval with steps."""
        middles = {name: self.middle(f"node.{name}") for name in _READS}
        return {name: min(means[name], rate) for name, rate in middles.items() if rate is not None and name in means}

    def _traffic(self) -> dict[str, float]:
        """Bytes per second of all interfaces of a kind: net.rx, ib.tx."""
        total: dict[str, float] = {}
        for part in self._groups:
            kind = part.partition(".")[0]
            if kind in ("net", "ib", "efa"):
                for way, rate in self._of(part)[0].items():
                    total[f"{kind}.{way}"] = total.get(f"{kind}.{way}", 0.0) + rate
        return total

    def devices(self, ranks: Sequence[RankEvidence] | None) -> list[GpuEvidence]:
        """The node's GPUs. `ranks`: those of the node; None where it is not known which GPUs they use."""
        return [self._device(fact, ranks) for fact in self._gpus()]

    def _device(self, fact: Mapping[str, Any], ranks: Sequence[RankEvidence] | None) -> GpuEvidence:
        index, name = as_int(fact.get("index")) or 0, text(fact.get("name")) or ""
        means, peaks = self._of(f"gpu{index}")
        return GpuEvidence(
            node=self._series.node,
            index=index,
            name=name,
            memory=amount(fact.get("memory")),
            power_limit=amount(fact.get("power_limit"), "power"),
            mig=bool(fact.get("mig")),
            ranks=None if ranks is None else tuple(rank.rank for rank in ranks if index in rank.devices),
            means=means,
            peaks=peaks,
            absent=self._absent(f"gpu{index}"),
            memory_points=self.points(f"gpu{index}.memory"),
        )

    def indexes(self, names: Any) -> tuple[int, ...]:
        """The indexes of GPUs that a rank names by UUID or index; empty where one of them is not known here."""
        facts = self._gpus()
        by_name = {str(fact.get("uuid")): fact for fact in facts} | {str(fact.get("index")): fact for fact in facts}
        found = [by_name.get(str(name)) for name in names] if isinstance(names, list) else []
        return tuple(as_int(fact.get("index")) or 0 for fact in found if fact is not None) if None not in found else ()

    def rates(self) -> tuple[str, Points]:
        """What the node's lowest rank does each second of stepping, and what that counts: the work that it tells of,
        tokens or samples, else steps. A step may grow on purpose, such as a batch or a sequence that gets longer."""
        ranks = sorted(int(name[4:]) for name in self._groups if name[:4] == "rank" and name[4:].isdecimal())
        for rank in ranks:
            for unit in ("tokens", "samples", "steps"):
                if points := self._rates(f"rank{rank}", unit):
                    return unit, points
        return "steps", ()

    def _rates(self, rank: str, unit: str) -> Points:
        rows = zip(
            self._series.times,
            self._series.values.get(f"{rank}.{unit}", ()),
            self._shares(rank),
            self._inside,
            strict=False,
        )
        return _thinned(
            [
                (time, value / share)
                for time, value, share, inside in rows
                if inside and value is not None and share >= _LEAST_SHARE
            ]
        )

    def shares_of(self, rank: int) -> dict[str, float]:
        """Activity → its share of the time since the first step."""
        columns = {name: f"rank{rank}.{name}.share" for name in self._activities(rank)}
        found = {name: _weighted(self._series.values[column], self._since) for name, column in columns.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _activities(self, rank: int) -> list[str]:
        start, end = f"rank{rank}.", ".share"
        return [
            name[len(start) : -len(end)]
            for name in self._series.values
            if name[: len(start)] == start and name.endswith(end)
        ]

    def middle(self, column: str) -> float | None:
        """The median of a column while steps were made: one slow first sample does not count."""
        values = self._series.values.get(column, ())
        known = [value for value, inside in zip(values, self._inside, strict=False) if inside and value is not None]
        return median(known) if known else None

    def _gpus(self) -> list[Mapping[str, Any]]:
        gpus = self._series.facts.get("gpus")
        return [fact for fact in gpus if isinstance(fact, dict)] if isinstance(gpus, list) else []

    def _by_part(self) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for column in self._series.values:
            groups.setdefault(column.rpartition(".")[0], []).append(column)
        return groups

    def _shares(self, rank: str = "") -> list[float]:
        """The share of each interval that its ranks (or one of them) spent on steps; 1 where no rank tells."""
        total = [0.0] * len(self._series.times)
        count: set[str] = set()
        for column, values in self._series.values.items():
            name, _, rest = column.partition(".")
            if name.startswith("rank") and (not rank or name == rank) and rest.removesuffix(".share") in STEPPING:
                count.add(name)
                total = [before + (value or 0.0) for before, value in zip(total, values, strict=True)]
        return [min(1.0, value / len(count)) for value in total] if count else [1.0] * len(total)

    def _of(self, part: str) -> tuple[dict[str, float], dict[str, float]]:
        means: dict[str, float] = {}
        peaks: dict[str, float] = {}
        for column in self._groups.get(part, ()):
            values, name = self._series.values[column], column.rpartition(".")[2]
            found = _weighted(values, self._weights)
            if found is not None:
                means[name] = found
            known = [value for value in values if value is not None]
            if known:
                peaks[name] = max(known)
        return means, peaks

    def _absent(self, part: str) -> dict[str, str]:
        return {
            name.rpartition(".")[2]: why for name, why in self._series.absent.items() if name.rpartition(".")[0] == part
        }

    def points(self, column: str) -> Points:
        """The measured values of a column while steps were made."""
        values = self._series.values.get(column, ())
        rows = zip(self._series.times, values, self._inside, strict=False)
        return _thinned([(time, value) for time, value, inside in rows if inside and value is not None])


def _weighted(values: Column, weights: Sequence[float]) -> float | None:
    """The weighted mean of what was measured. A column without gaps takes the fast way: there are thousands."""
    try:
        total, weight = sum(map(mul, values, weights)), sum(weights)
    except TypeError:
        known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
        total, weight = sum(value * weight for value, weight in known), sum(weight for _, weight in known)
    return total / weight if weight > 0 else None


def _thinned(points: list[tuple[float, float]]) -> Points:
    """At most _MOST_POINTS: the upper medians of neighbours."""
    size = -(-len(points) // _MOST_POINTS) or 1
    if size == 1:
        return tuple(points)
    blocks = [points[at : at + size] for at in range(0, len(points), size)]
    return tuple((block[len(block) // 2][0], sorted(v for _, v in block)[len(block) // 2]) for block in blocks)
