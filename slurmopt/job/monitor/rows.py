"""Merges readings into rows, and rows into longer ones: means weighted with time, maxima of peaks, last steps."""

from __future__ import annotations

import math
from collections.abc import Mapping

from slurmopt.run_folder.series.series_format import LAST, PEAK, SHARE


class Merged:
    """One value for each column of several intervals. It is the arithmetic of `merge` in
    `slurmopt.run_folder.series.series`, one interval after the other."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._weights: dict[str, float] = {}

    def add(self, values: Mapping[str, float | None], seconds: float) -> None:
        """Adds an interval. What is not measured, and what is no finite number, does not count."""
        sums, weights = self._sums, self._weights
        for column, value in values.items():
            if value is None or not math.isfinite(value):
                continue
            if column not in sums:
                sums[column], weights[column] = value * seconds, seconds
                if column.endswith((PEAK, LAST)):
                    sums[column] = value
            elif column.endswith(PEAK):
                sums[column] = max(sums[column], value)
            elif column.endswith(LAST):
                sums[column] = value
            else:
                sums[column] += value * seconds
                weights[column] += seconds

    def values(self) -> dict[str, float]:
        """Column → its value."""
        measured = self._measured()
        return {
            column: total if column.endswith((PEAK, LAST)) else total / measured.get(column, self._weights[column])
            for column, total in self._sums.items()
        }

    def _measured(self) -> dict[str, float]:
        """Share → the time for which its rank told any: an activity that it had not begun took none of it."""
        shares = [(column, column.partition(".")[0]) for column in self._weights if column.endswith(SHARE)]
        longest: dict[str, float] = {}
        for column, rank in shares:
            longest[rank] = max(longest.get(rank, 0.0), self._weights[column])
        return {column: longest[rank] for column, rank in shares}
