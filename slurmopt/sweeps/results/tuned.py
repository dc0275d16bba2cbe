"""What a search of `slurmopt tune` has tried, from the points of its sweep."""

from __future__ import annotations

from slurmopt.config.sweep import BATCH_SIZE, LOADER
from slurmopt.errors import RunError
from slurmopt.grid import points_file
from slurmopt.grid.search import batch_size, loader_workers
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.sweeps.results import outcomes
from slurmopt.sweeps.results.outcomes import Row
from slurmopt.sweeps.status.query import sweep_states

_WHAT = {BATCH_SIZE: "a batch size", LOADER: "a number of workers"}
_TOO_SHORT = "the training ended before its steps were measured; give fewer: --steps"


def key_of(sweep: SweepFolder, method: str) -> str:
    """The key whose values were tried. RunError if the sweep is no such search."""
    points = points_file.load(sweep.points_file)
    if points.kind != "search" or len(points.columns) != 1:
        raise RunError(f"{sweep.name}/{sweep.id} is not a search for {_WHAT[method]} (sweep.search={method})")
    return points.columns[0].key


def sizes(sweep: SweepFolder) -> list[batch_size.Trial]:
    """The trials of batch sizes that were made, by size. RunError as `key_of`."""
    found = [_size(row, value) for row, value in _rows(sweep, BATCH_SIZE)]
    return sorted((trial for trial in found if trial is not None), key=lambda trial: trial.size)


def workers(sweep: SweepFolder) -> list[loader_workers.Trial]:
    """The trials of numbers of workers that were made, in their order. RunError as `key_of`."""
    found = [_workers(row, value) for row, value in _rows(sweep, LOADER)]
    return [trial for trial in found if trial is not None]


def _rows(sweep: SweepFolder, method: str) -> list[tuple[Row, int]]:
    key = key_of(sweep, method)
    table = outcomes.table(sweep_states(sweep, metrics=True))
    return [(row, row.values[key]) for row in table.rows(table.places) if isinstance(row.values.get(key), int)]


def _size(row: Row, size: int) -> batch_size.Trial | None:
    if batch_size.RATE in row.metrics:
        memory, limit = row.metrics.get(batch_size.MEMORY), row.metrics.get(batch_size.LIMIT)
        return batch_size.Trial(size=size, rate=row.metrics[batch_size.RATE], memory=memory, limit=limit)
    error = _error(row)
    return None if error is None else batch_size.Trial(size=size, error=error)


def _workers(row: Row, count: int) -> loader_workers.Trial | None:
    if loader_workers.RATE in row.metrics:
        return loader_workers.trial_of(count, row.metrics)
    error = _error(row)
    return None if error is None else loader_workers.Trial(workers=count, error=error)


def _error(row: Row) -> str | None:
    return _TOO_SHORT if row.state == "finished" and not row.pruned else row.error
