"""Collects values for CloudWatch over an interval, in few metrics, as each combination with dimensions is billed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slurmopt.job.sinks.record import Place, Record
from slurmopt.run_folder.series.export_names import Sample, sample

MOST_NAMES = 100
"""Names of `progress` that are sent: a name with a step in it would be billed each time."""
LARGEST = 2.0**360
"""CloudWatch's bound."""
Dimensions = tuple[tuple[str, str], ...]
_PERCENT = 100.0


@dataclass
class Values:
    """The values of one metric within an interval."""

    name: str
    unit: str
    dimensions: Dimensions
    counts: Counter[float] = field(default_factory=Counter)
    """Value → how often it occurred."""


class Collected:
    """The values since the last `take`."""

    def __init__(self, dimensions: Mapping[str, str], of_gpu: bool, place: Place) -> None:
        self._dimensions: Dimensions = tuple(sorted(dimensions.items()))
        self._of_gpu, self._node = of_gpu, place.node
        self._names: set[str] = set()
        self._values: dict[tuple[str, Dimensions], Values] = {}

    def add(self, records: Sequence[Record]) -> None:
        """Adds the values of records; NaN, infinities and what is beyond CloudWatch's bound are left out."""
        for record in records:
            for name, value in record.values.items():
                if record.hardware:
                    self._add_measured(name, value)
                elif self._is_known(name):
                    self._add(metric_name(name), "None", value, self._dimensions)

    def take(self) -> list[Values]:
        """What was collected, and begins anew."""
        values, self._values = list(self._values.values()), {}
        return values

    def _is_known(self, name: str) -> bool:
        if len(self._names) < MOST_NAMES:
            self._names.add(name)
        return name in self._names

    def _add_measured(self, column: str, value: float) -> None:
        found = sample(column)
        if found is None or found.measurement.cloudwatch is None:
            return
        unit = found.measurement.unit
        scaled = value * found.measurement.scale * (_PERCENT if unit == "Percent" else 1.0)
        self._add(found.measurement.cloudwatch, unit, scaled, self._of_sample(found))

    def _of_sample(self, found: Sample) -> Dimensions:
        if self._of_gpu and "gpu" in found.labels:
            return (*self._dimensions, ("GPU", found.labels["gpu"]), ("Node", self._node))
        return self._dimensions

    def _add(self, name: str, unit: str, value: float, dimensions: Dimensions) -> None:
        if math.isfinite(value) and abs(value) <= LARGEST:
            self._values.setdefault((name, dimensions), Values(name, unit, dimensions)).counts[value] += 1


def metric_name(name: str) -> str:
    """A name as CloudWatch takes it: 1 to 255 printable ASCII characters."""
    return "".join(each if each.isascii() and each.isprintable() else "_" for each in name)[:255] or "_"
