"""Selects and orders the rows of `slurmopt list`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

from slurmopt.config.check import did_you_mean
from slurmopt.errors import InputError
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.status.state import ALIVE, ENDED
from slurmopt.sweeps.listing.rows import Row

STATES = ("unsubmitted", *ALIVE, *ENDED, "unknown")
_KEYS: dict[str, Callable[[Row], Any]] = {
    "name": lambda row: (row.name, row.id),
    "state": lambda row: STATES.index(row.state) if row.state in STATES else len(STATES),
    "job": lambda row: [(len(word), word) for word in (row.job or "").split("_")],
    "progress": lambda row: -(row.progress.step or 0) / (row.progress.total_steps or row.progress.step or 1),
}
"""What `--sort` orders by, smallest first; another word is the name of a metric. The order of `launched` is there."""


def states(text: str) -> frozenset[str]:
    """The states of `failed,running`. InputError where one of them is none."""
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in STATES:
            hint = did_you_mean(word, STATES)
            raise InputError(f"list: --state: no state {word!r}{hint}; valid: {', '.join(STATES)}, with commas")
    if not words:
        raise InputError(f"list: --state: no state; valid: {', '.join(STATES)}, with commas")
    return frozenset(words)


def of_name(folders: Iterable[RunFolder], pattern: str | None) -> list[RunFolder]:
    """Those whose name matches the pattern with `*`, `?` and `[…]`; all without a pattern."""
    return [run for run in folders if pattern is None or fnmatchcase(run.name, pattern)]


def ordered(rows: list[Row], by: str) -> list[Row]:
    """The rows by that key. InputError where it is neither a key nor a metric of one of them.

    For a metric the smallest value comes first; NaN, and rows without that metric, come last.
    """
    if by == "launched":
        return rows
    if by in _KEYS:
        return sorted(rows, key=_KEYS[by])
    known = sorted({name for row in rows for name in row.progress.metrics})
    if rows and by not in known:
        valid = ["launched", *_KEYS, *known]
        raise InputError(f"list: --sort: no {by!r} to sort by{did_you_mean(by, valid)}; valid: {', '.join(valid)}")
    return sorted(rows, key=lambda row: _metric(row, by))


def _metric(row: Row, name: str) -> tuple[bool, float]:
    value = row.progress.metrics.get(name, math.nan)
    return (True, 0.0) if math.isnan(value) else (False, value)
