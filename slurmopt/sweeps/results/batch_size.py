"""What a search for a batch size has tried, from the points of its sweep."""

from __future__ import annotations

from slurmopt.config.sweep import BATCH_SIZE
from slurmopt.errors import RunError
from slurmopt.grid import points_file
from slurmopt.grid.search.batch_size import LIMIT, MEMORY, RATE, Trial
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.sweeps.results import outcomes
from slurmopt.sweeps.results.outcomes import Row
from slurmopt.sweeps.status.query import sweep_states


def key_of(sweep: SweepFolder) -> str:
    """The key whose values are the sizes. RunError if the sweep is no search for a batch size."""
    points = points_file.load(sweep.points_file)
    if points.kind != "search" or len(points.columns) != 1:
        raise RunError(f"{sweep.name}/{sweep.id} is not a search for a batch size (sweep.search={BATCH_SIZE})")
    return points.columns[0].key


def tried(sweep: SweepFolder) -> list[Trial]:
    """The trials that were made, by size. RunError as `key_of`."""
    key = key_of(sweep)
    table = outcomes.table(sweep_states(sweep, metrics=True))
    found = [_trial(row, row.values[key]) for row in table.rows(table.places) if isinstance(row.values.get(key), int)]
    return sorted((trial for trial in found if trial is not None), key=lambda trial: trial.size)


def _trial(row: Row, size: int) -> Trial | None:
    if RATE in row.metrics:
        return Trial(size=size, rate=row.metrics[RATE], memory=row.metrics.get(MEMORY), limit=row.metrics.get(LIMIT))
    if row.state == "finished" and not row.pruned:
        return Trial(size=size, error="the training ended before its steps were measured; give fewer: --steps")
    return None if row.error is None else Trial(size=size, error=row.error)
