"""Takes the earlier reports of ranks from the series of their nodes: how far each was, and what it had spent."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from slurmopt.ledger.record import Sample
from slurmopt.run_folder.series.series import Series

_SHARE = re.compile(r"rank(\d{1,7})\.(.+)\.share")
_FEWEST = 40
"""Of a rank; where there are too many ranks for that, only the first ones of each node have samples."""


def rank_samples(series: Series, most: int) -> dict[int, tuple[Sample, ...]]:
    """Rank → its samples, oldest first; about `most` of all ranks of the node. Of long attempts not every row becomes
    one: half of them are the newest rows, where an attempt's end is looked at, and half are spread over the others."""
    columns = _columns(series)
    while len(columns) > 1 and most < _FEWEST * len(columns):  # the ranks of a node make their steps together
        columns.popitem()
    of_each = max(_FEWEST, most // max(1, len(columns)))
    return {rank: tuple(_samples(series, rank, names, of_each)) for rank, names in columns.items()}


def _columns(series: Series) -> dict[int, dict[str, str]]:
    """Rank → its activities, each with its column."""
    found: dict[int, dict[str, str]] = defaultdict(dict)
    for column in series.values:
        if (match := _SHARE.fullmatch(column)) is not None:
            found[int(match[1])][match[2]] = column
    return found


def _samples(series: Series, rank: int, columns: Mapping[str, str], most: int) -> Iterator[Sample]:
    spent = {activity: _running_sum(series, column) for activity, column in columns.items()}
    steps = series.values.get(f"rank{rank}.step") or [None] * len(series.times)
    for row in _rows(len(series.times), most):
        step = steps[row]
        until = {activity: sums[row] for activity, sums in spent.items() if sums[row] > 0}
        yield Sample(series.times[row], None if step is None else int(step), until)


def _running_sum(series: Series, column: str) -> list[float]:
    """Seconds in an activity until the end of each row; a row in which it was not measured adds none."""
    total, sums = 0.0, []
    for share, seconds in zip(series.values[column], series.seconds, strict=True):
        total += (share or 0.0) * seconds
        sums.append(total)
    return sums


def _rows(count: int, most: int) -> list[int]:
    if count <= most:
        return list(range(count))
    newest = list(range(count - most // 2, count))
    stride = -(-newest[0] // (most - len(newest)))
    return [*range(0, newest[0], stride), *newest]
