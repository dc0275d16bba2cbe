"""The energy that GPUs used, from the power that the samplers measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slurmopt.run_folder.series.series import Series

_JOULES = 3.6e6
"""Of a kilowatt-hour."""


@dataclass(frozen=True)
class Energy:
    """Of the GPUs alone: not of CPUs, memory, network or cooling."""

    kwh: float
    """Kilowatt-hours: the mean power of each interval times its length."""
    measured: float
    """GPU-seconds in which the power was measured; the energy of the others is not in it."""

    def share_of(self, gpu_milliseconds: int) -> float:
        """The share of an allocation in which power was measured, 0 to 1."""
        return min(1.0, self.measured * 1000 / gpu_milliseconds) if gpu_milliseconds > 0 else 0.0

    def co2(self, kg_per_kwh: float) -> float:
        """Kilograms of CO2, for a stated factor."""
        return self.kwh * kg_per_kwh


def energy(series: Iterable[Series]) -> Energy | None:
    """The energy of all GPUs of these nodes; None where no power was measured."""
    joules = measured = 0.0
    for one in series:
        for column in one.columns("power"):
            if not column.startswith("gpu"):
                continue
            for watts, seconds in zip(one.values[column], one.seconds, strict=True):
                if watts is not None and watts >= 0:
                    joules += watts * seconds
                    measured += seconds
    return Energy(joules / _JOULES, measured) if measured else None
