"""Merges rows of a series by their exact means, so that the series of many nodes fit into memory."""

from __future__ import annotations

from dataclasses import replace

from slurmopt.run_folder.series import Series, merge
from slurmopt.run_folder.series_format import LAST, PEAK


def thinned(series: Series, most: int) -> Series:
    """The series with about `most` rows, each of about the same length; the series itself where it has no more."""
    if len(series.times) <= most:
        return series
    groups = _groups(series.seconds, most)
    ends = [end for _, end in groups]
    return replace(
        series,
        times=[series.times[end - 1] for end in ends],
        seconds=[sum(series.seconds[start:end]) for start, end in groups],
        values={name: _merged(name, values, series.seconds, groups) for name, values in series.values.items()},
    )


def _groups(seconds: list[float], most: int) -> list[tuple[int, int]]:
    """Rows that follow each other, from and until, in groups of about the same length."""
    length = sum(seconds) / most
    groups, start, since = [], 0, 0.0
    for at, one in enumerate(seconds, 1):
        since += one
        if since >= length * 0.999:
            groups.append((start, at))
            start, since = at, 0.0
    return [*groups, (start, len(seconds))] if start < len(seconds) else groups


def _merged(
    name: str, values: list[float | None], seconds: list[float], groups: list[tuple[int, int]]
) -> list[float | None]:
    if values.count(None):
        return [merge(name, values[start:end], seconds[start:end]) for start, end in groups]
    known: list[float] = values  # type: ignore[assignment]
    if name.endswith(LAST):
        return [known[end - 1] for _, end in groups]
    if name.endswith(PEAK):
        return [max(known[start:end]) for start, end in groups]
    return [_mean(known[start:end], seconds[start:end]) for start, end in groups]


def _mean(values: list[float], seconds: list[float]) -> float:
    if seconds.count(seconds[0]) == len(seconds):  # as most rows have
        return sum(values) / len(values)
    total = sum(seconds)
    return sum(map(float.__mul__, values, seconds)) / total if total else values[-1]
