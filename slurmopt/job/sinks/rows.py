"""Follows the series of a node: the rows that its sampler adds."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from slurmopt.errors import StorageError
from slurmopt.job.sinks.record import Record
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.series import series
from slurmopt.run_folder.series.series import Series

_STEP = ".step"
_RANK = re.compile(r"rank\d+\.")
_EVERY = 5.0
"""Seconds between two looks; a row comes each ten."""


class Rows:
    """The rows of `NODE.recent.jsonl` that were not seen yet."""

    def __init__(self, path: Path, with_ranks: bool = True) -> None:
        """`with_ranks`: with the columns of the node's ranks. The one of a pack is its parent, whose steps are
        points."""
        self._path, self._with_ranks = path, with_ranks
        self._looked = float("-inf")
        self._facts: tuple[int, int, int] | None = None
        self._last = float("-inf")

    def read(self, is_last: bool) -> list[Record]:
        """The new rows, looked for every few seconds, and when `is_last`. A file that cannot be read just now has
        none."""
        if time.monotonic() - self._looked < _EVERY and not is_last:
            return []
        self._looked = time.monotonic()
        try:
            facts = os.stat(held(self._path))
            seen, self._facts = self._facts, (facts.st_ino, facts.st_size, facts.st_mtime_ns)
            found = None if seen == self._facts else series.read(self._path)
        except (OSError, StorageError):  # no sampler, or not yet; the sampler says what is wrong
            return []
        return [] if found is None else self._new(found)

    def _new(self, found: Series) -> list[Record]:
        records = []
        columns = {name: values for name, values in found.values.items() if self._with_ranks or not _RANK.match(name)}
        for index, at in enumerate(found.times):
            if at > self._last:
                row = {name: value for name, values in columns.items() if (value := values[index]) is not None}
                records.append(Record(at, _step(row), row, hardware=True))
        self._last = max([self._last, *found.times])
        return records


def _step(row: dict[str, float]) -> int | None:
    steps = [value for name, value in row.items() if name.startswith("rank") and name.endswith(_STEP)]
    return int(max(steps)) if steps else None
