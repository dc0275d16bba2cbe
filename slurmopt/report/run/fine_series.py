"""Reads the newest rows of small runs in full detail, for curves: a run of minutes has one merged row for each node."""

from __future__ import annotations

import contextlib

from slurmopt.errors import StorageError
from slurmopt.report.records.all_series import wanted
from slurmopt.report.run_record import RunRecord
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series import series as node_series
from slurmopt.run_folder.series.series import Series

_MOST = 32
"""Series that are read in detail; of larger runs the merged rows must do."""
_MOST_VALUES = 1 << 20
"""Of one of them: a sampler's file of 1 MB has half as many."""
_CLOSE = 0.5
"""Seconds: lengths are of another clock than ends, so that the starts of a merged row and of its first fine one differ
by some milliseconds. No row is as short as this, but the last."""


def refine(record: RunRecord) -> None:
    """Replaces merged rows by those that they were made of, where these are still there."""
    if sum(len(series) for series in record.series.values()) > _MOST:
        return
    for attempt, by_node in record.series.items():
        for node, series in by_node.items():
            by_node[node] = _fine(record.folder, attempt, node, series)


def _fine(run: RunFolder, attempt: int, node: str, series: Series) -> Series:
    recent: Series | None = None
    with contextlib.suppress(OSError, StorageError):
        recent = node_series.read(run.recent_series(attempt, node), wanted=wanted)
    if recent is None or not recent.times or len(recent.times) * len(recent.values) > _MOST_VALUES:
        return series
    return joined(series, recent)


def joined(series: Series, recent: Series) -> Series:
    """The rows of `series` that begin before those of `recent`, then the rows of `recent` that begin after them."""
    first = recent.times[0] - recent.seconds[0]
    kept = sum(end - seconds < first - _CLOSE for end, seconds in zip(series.times, series.seconds, strict=True))
    last = series.times[kept - 1] if kept else float("-inf")
    skipped = sum(end - seconds < last - _CLOSE for end, seconds in zip(recent.times, recent.seconds, strict=True))
    if len(recent.times) - skipped <= len(series.times) - kept:
        return series
    whole = Series(series.node, series.attempt, absent=series.absent, facts=series.facts, events=series.events)
    whole.times = series.times[:kept] + recent.times[skipped:]
    whole.seconds = series.seconds[:kept] + recent.seconds[skipped:]
    for column in {**series.values, **recent.values}:
        before = series.values.get(column, [None] * len(series.times))[:kept]
        after = recent.values.get(column, [None] * len(recent.times))[skipped:]
        whole.values[column] = before + after
    return whole
