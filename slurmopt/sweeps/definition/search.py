"""Prepares a search on the login side: checks it before anything is submitted, and writes the study file."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from slurmopt.config.sweep import PRUNING, TUNING
from slurmopt.errors import ConfigError, RunError
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.search import space
from slurmopt.grid.search.batch_size import RATE
from slurmopt.grid.search.space import Search
from slurmopt.run_folder.sweep_layout import SweepFolder

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings
    from slurmopt.grid.axes import Axis


def check_search(settings: Settings, axes: Sequence[Axis]) -> None:
    """Raises ConfigError where `sweep.search` cannot work with this config. Writes nothing, and does not load
    Optuna."""
    sweep, task = settings.sweep, settings.task
    if sweep.search is None:
        return
    space.check(axes)
    if sweep.search in TUNING:
        space.check_tuned_axes(sweep.search, axes)
    if task.command is not None and sweep.search in (*PRUNING, *TUNING):
        raise ConfigError(
            f"{sweep.search} ends trials from inside progress(), in the function of task._target_; for a task.command: "
            "random, tpe",
            "sweep.search",
        )
    if sweep.metric is None and (sweep.search in PRUNING or task.command is not None):
        raise ConfigError(
            "has no value; name the metric to optimize, as progress() reports it: sweep.metric=val_loss",
            "sweep.metric",
        )
    if find_spec("optuna") is None:
        raise ConfigError("needs Optuna: pip install 'optuna>=4.3'", "sweep.search")


def left_to_try(sweep: SweepFolder, points: Ranges) -> Ranges:
    """Those of `points` whose trials have no result in the study yet; a failed trial has one. RunError where there is
    none, ConfigError where the study is another sweep's or damaged."""
    study = _study()
    name = f"{sweep.name}/{sweep.id}"
    _, storage = study.open_storage(sweep.study)
    study.find(sweep.study, name, storage)
    (existing,) = storage.get_all_studies()
    trials = storage.get_all_trials(existing._study_id, deepcopy=False)
    untried = points.difference(Ranges.of(trial.number for trial in trials if trial.state.is_finished()))
    if not untried:
        raise RunError(
            f"{name}: a search counts a failed trial as tried, and learns from it: none of {points} is left to try; "
            "for more trials launch a search of its own"
        )
    return untried


def make_study(sweep: SweepFolder, settings: Settings) -> None:
    """Writes study.journal, or completes it. ConfigError where the file is another sweep's."""
    sweep_config, task = settings.sweep, settings.task
    if sweep_config.search is None or sweep_config.trials is None:
        return
    _study().make(
        sweep.study,
        f"{sweep.name}/{sweep.id}",
        Search(
            method=sweep_config.search,
            trials=sweep_config.trials,
            metric=RATE if sweep_config.search in TUNING else sweep_config.metric,
            command=task.command is not None,
            direction="maximize" if sweep_config.search in TUNING else sweep_config.direction,
            seed=sweep_config.seed,
            steps=sweep_config.steps,
        ),
    )


def _study() -> Any:
    """The module that loads Optuna."""
    try:
        from slurmopt.grid.search import study
    except ImportError as error:
        raise ConfigError(f"needs Optuna: {error}; pip install 'optuna>=4.3'", "sweep.search") from error
    return study
