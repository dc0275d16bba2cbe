"""What a search of `slurmopt tune` has tried, from the points of its sweep."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Generic, TypeVar

from slurmopt.config.sweep import BATCH_SIZE, LOADER
from slurmopt.errors import RunError
from slurmopt.grid import points_file
from slurmopt.grid.axes import Axis, Interval
from slurmopt.grid.search import batch_size, loader_settings, space
from slurmopt.grid.search.loader_settings import Setting
from slurmopt.grid.search.measured import measured
from slurmopt.restart import causes
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs import stored_config
from slurmopt.sweeps.results import outcomes
from slurmopt.sweeps.results.outcomes import Row
from slurmopt.sweeps.status.point_states import SweepStates
from slurmopt.sweeps.status.query import sweep_states

_WHAT = {BATCH_SIZE: "a batch size", LOADER: "a number of workers"}
_TOO_SHORT = (
    "the training ended before its steps were measured; make the trials shorter (--steps), and let it call "
    "slurmopt.progress(step) in each step"
)
RUNNING, STOPPED, ENDED = "running", "stopped", "ended"
"""The state of a search: trials are left to make; they will not be made (cancelled, lost); none is left."""

_Trial = TypeVar("_Trial")


@dataclass(frozen=True)
class Made(Generic[_Trial]):
    """The trials that were made, and the state of the search."""

    trials: list[_Trial]
    state: str


@dataclass(frozen=True)
class LoaderKeys:
    """The keys of a search for the settings of a loader."""

    workers: str
    most: int
    """The largest number of workers that may be tried."""
    prefetch: str | None
    """None where the config had none."""
    pinned: str | None


def key_of(sweep: SweepFolder, method: str) -> str:
    """The key whose values were tried. RunError if the sweep is no such search."""
    return _axis(sweep, method).keys[0]


def loader_keys(sweep: SweepFolder) -> LoaderKeys:
    """The keys whose values were tried. RunError as `key_of`."""
    workers = _axis(sweep, LOADER)
    others = [axis for axis in points_file.load(sweep.points_file).axes if axis.keys != workers.keys]
    prefetch = next((axis.keys[0] for axis in others if space.is_prefetch(axis)), None)
    pinned = next((axis.keys[0] for axis in others if space.is_pinned(axis)), None)
    return LoaderKeys(workers.keys[0], _ends(workers)[1], prefetch, pinned)


def sizes(sweep: SweepFolder) -> Made[batch_size.Trial]:
    """The trials of batch sizes, by size. RunError as `key_of`."""
    axis, states = _axis(sweep, BATCH_SIZE), sweep_states(sweep, metrics=True)
    found = [_size(row, value, states.of(row.point).cause) for row, value in _rows(states, axis)]
    trials = sorted((trial for trial in found if trial is not None), key=lambda trial: trial.size)
    low, high, step = _ends(axis)
    return Made(trials, _state(states, batch_size.following(trials, low, high, step) is None))


def loaders(sweep: SweepFolder) -> Made[loader_settings.Trial]:
    """The trials of a loader's settings, in their order. RunError as `key_of`."""
    keys, axis, states = loader_keys(sweep), _axis(sweep, LOADER), sweep_states(sweep, metrics=True)
    found = [_loader(row, _setting(row, workers, keys)) for row, workers in _rows(states, axis)]
    trials = [trial for trial in found if trial is not None]
    return Made(trials, _state(states, _is_answered(trials, axis)))


def _axis(sweep: SweepFolder, method: str) -> Axis:
    points = points_file.load(sweep.points_file)
    stored = stored_config.group(sweep.run, "sweep").get("search", method)
    numbers = (axis for axis in points.axes if isinstance(axis.values, (range, Interval)) and axis.keys)
    axis = next(numbers, None)
    if points.kind != "search" or stored != method or axis is None:
        raise RunError(f"{sweep.name}/{sweep.id} is not a search for {_WHAT[method]} (sweep.search={method})")
    return axis


def _ends(axis: Axis) -> tuple[int, int, int]:
    """The least value, the largest one, and the step between values."""
    values = axis.values
    if isinstance(values, Interval):
        return int(values.start), int(values.end), 1
    assert isinstance(values, range)
    return values[0], values[-1], values.step


def _state(states: SweepStates, is_answered: bool) -> str:
    if states.alive:
        return RUNNING
    return STOPPED if not is_answered and states.numbers("cancelled", "lost") else ENDED


def _is_answered(trials: list[loader_settings.Trial], axis: Axis) -> bool:
    low, high, _ = _ends(axis)
    pinned = trials[0].pinned if trials else True
    within = loader_settings.Space(low=low, high=high, pinned=pinned)
    return loader_settings.following(trials, within) is None


def _rows(states: SweepStates, axis: Axis) -> list[tuple[Row, int]]:
    table = outcomes.table(states)
    found = [(row, row.values.get(axis.keys[0])) for row in table.rows(table.places)]
    return [(row, value) for row, value in found if isinstance(value, int) and not _was_stopped(row, states)]


def _was_stopped(row: Row, states: SweepStates) -> bool:
    return row.state == "cancelled" or states.of(row.point).cause == causes.CANCELLED


def _size(row: Row, size: int, cause: str | None) -> batch_size.Trial | None:
    metrics = measured(row.metrics)
    if metrics.get(batch_size.RATE):
        memory, limit = metrics.get(batch_size.MEMORY), metrics.get(batch_size.LIMIT)
        return batch_size.Trial(size=size, rate=metrics[batch_size.RATE], memory=memory, limit=limit)
    error = _error(row)
    return None if error is None else batch_size.Trial(size=size, error=error, too_large=cause in causes.OF_MEMORY)


def _setting(row: Row, workers: int, keys: LoaderKeys) -> Setting:
    prefetch = None if keys.prefetch is None else row.values.get(keys.prefetch)
    pinned = True if keys.pinned is None else bool(row.values.get(keys.pinned))
    return Setting(workers=workers, prefetch=prefetch if isinstance(prefetch, int) else None, pinned=pinned)


def _loader(row: Row, setting: Setting) -> loader_settings.Trial | None:
    metrics = measured(row.metrics)
    if metrics.get(loader_settings.RATE):
        return loader_settings.trial_of(setting, metrics)
    error = _error(row)
    return None if error is None else loader_settings.Trial(**asdict(setting), error=error)


def _error(row: Row) -> str | None:
    if row.error is not None:
        return row.error
    return _TOO_SHORT if row.state == "finished" and not row.pruned else None
