"""Merges rows of a series by their exact means, so that the series of many nodes fit into memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from operator import mul

from slurmopt.run_folder.series.series import Series, merge
from slurmopt.run_folder.series.series_format import LAST, PEAK

_Group = tuple[int, int, float]
"""Rows that follow each other and become one: the first, the one behind the last, and their length together."""


def thinned(series: Series, most: int) -> Series:
    """The series with about `most` rows, each of about the same length; the series itself where it has no more."""
    if len(series.times) <= most or not sum(series.seconds):
        return series
    groups = _groups(series.seconds, most)
    return replace(
        series,
        times=[series.times[end - 1] for _, end, _ in groups],
        seconds=[length for _, _, length in groups],
        values={name: _merged(name, values, series.seconds, groups) for name, values in series.values.items()},
    )


def _groups(seconds: list[float], most: int) -> list[_Group]:
    enough = sum(seconds) / most * 0.999
    groups: list[_Group] = []
    start, length = 0, 0.0
    for at, one in enumerate(seconds, 1):
        length += one
        if length >= enough or at == len(seconds):
            groups.append((start, at, length))
            start, length = at, 0.0
    return groups


def _merged(name: str, values: list[float | None], seconds: list[float], groups: list[_Group]) -> list[float | None]:
    try:
        return _of_known(name, values, seconds, groups)  # type: ignore[arg-type]
    except TypeError:  # there are None among them
        return [merge(name, values[start:end], seconds[start:end]) for start, end, _ in groups]


def _of_known(name: str, values: list[float], seconds: list[float], groups: list[_Group]) -> list[float | None]:
    if name.endswith(PEAK):
        return [max(values[start:end]) for start, end, _ in groups]
    if name.endswith(LAST):
        return [values[end - 1] for _, end, _ in groups]
    sums = list(accumulate(map(mul, values, seconds), initial=0.0))
    return [(sums[end] - sums[start]) / length if length else values[end - 1] for start, end, length in groups]
