"""Merges rows of a series by their exact means, so that the series of many nodes fit into memory."""

from __future__ import annotations

from dataclasses import replace
from operator import mul
from typing import NamedTuple

from slurmopt.run_folder.series import Series, merge
from slurmopt.run_folder.series_format import LAST, PEAK


class _Group(NamedTuple):
    """Rows that follow each other, and become one."""

    start: int
    end: int
    """The row behind the last."""
    weights: list[float] | None
    """The lengths of the rows; None where all have the same, as most have."""
    total: float
    """What the weights sum to; the number of rows where there are none."""


def thinned(series: Series, most: int) -> Series:
    """The series with about `most` rows, each of about the same length; the series itself where it has no more."""
    if len(series.times) <= most:
        return series
    groups = _groups(series.seconds, most)
    return replace(
        series,
        times=[series.times[group.end - 1] for group in groups],
        seconds=[sum(series.seconds[group.start : group.end]) for group in groups],
        values={name: _merged(name, values, series.seconds, groups) for name, values in series.values.items()},
    )


def _groups(seconds: list[float], most: int) -> list[_Group]:
    length = sum(seconds) / most
    spans, start, since = [], 0, 0.0
    for at, one in enumerate(seconds, 1):
        since += one
        if since >= length * 0.999:
            spans.append((start, at))
            start, since = at, 0.0
    if start < len(seconds):
        spans.append((start, len(seconds)))
    return [_group(start, end, seconds[start:end]) for start, end in spans]


def _group(start: int, end: int, lengths: list[float]) -> _Group:
    total = sum(lengths)
    if not total or lengths.count(lengths[0]) == len(lengths):
        return _Group(start, end, None, float(len(lengths)))
    return _Group(start, end, lengths, total)


def _merged(name: str, values: list[float | None], seconds: list[float], groups: list[_Group]) -> list[float | None]:
    if values.count(None):
        return [merge(name, values[start:end], seconds[start:end]) for start, end, _, _ in groups]
    known: list[float] = values  # type: ignore[assignment]
    if name.endswith(LAST):
        return [known[end - 1] for _, end, _, _ in groups]
    if name.endswith(PEAK):
        return [max(known[start:end]) for start, end, _, _ in groups]
    return [
        sum(known[start:end]) / total if weights is None else sum(map(mul, known[start:end], weights)) / total
        for start, end, weights, total in groups
    ]
