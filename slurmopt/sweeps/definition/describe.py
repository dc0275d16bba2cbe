"""`-m`: from overrides to the points of a sweep, each combination of config-group choices composed once."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf, open_dict

from slurmopt.config.composition.settings import settings
from slurmopt.errors import ConfigError
from slurmopt.grid.axes import Axis, Column
from slurmopt.grid.base_configs import Base, override_dirname
from slurmopt.grid.points import Points
from slurmopt.grid.resolvers import hydra_answers
from slurmopt.sweeps.definition.axes import Fixed
from slurmopt.sweeps.definition.base_configs import base_of, combinations
from slurmopt.sweeps.definition.compose import Composer, composer
from slurmopt.sweeps.definition.duplicates import refuse_equal_values
from slurmopt.sweeps.definition.options import options, sweeper_params
from slurmopt.sweeps.definition.parsed_sweep import ParsedSweep, draft
from slurmopt.sweeps.definition.shared_config import depends, needs, refuse_difference, refuse_influence, refuse_needs
from slurmopt.sweeps.definition.skip import kept
from slurmopt.sweeps.definition.unique_names import numbered
from slurmopt.sweeps.definition.values import check_on, checked

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings

_SOMEWHERE = Path("points") / "00000"


@dataclass(frozen=True)
class Described:
    """A sweep as the launch plans it."""

    points: Points
    config: DictConfig
    """The composed config of the first point, Hydra's node included, nothing resolved."""
    settings: Settings
    """Its typed groups. `${hydra:runtime.output_dir}` is a placeholder in them: each point has its own folder."""


def describe(overrides: list[str], config_dir: str | None = None) -> Described:
    """Reads the axes from the overrides, composes and checks. Nothing is written and nobody is asked.

    Raises ConfigError for a sweep without points, with equal ones, with a key that is nowhere or a value of the wrong
    type, and for whatever Hydra refuses.
    """
    with composer(overrides, config_dir) as session:
        return _described(draft(session, overrides), session)


def _described(sweep: ParsedSweep, session: Composer) -> Described:
    now = time.time()
    for column in sweep.columns:
        refuse_needs(column)
    refuse_equal_values([axis for axis in sweep.axes if axis.groups])
    picks, *others = combinations(sweep.axes)
    hydra: list[dict[str, Any]] = []
    config = sweep.config
    bases = [base_of(config, _picked(sweep, picks), hydra)]
    _answer_as_point(config, 0)
    with hydra_answers(config, now):
        axes = [Axis(tuple(_checked(column, config) for column in axis.columns)) for axis in sweep.axes]
        refuse_equal_values(axes)
        typed = settings(config)
        first_needs = needs(config)
        if depends(config):
            _refuse_dependence(axes, config, first_needs)
    for choice in others:
        bases.append(_further(replace(sweep, axes=axes), session, choice, hydra, first_needs, now))
    points = _points(replace(sweep, axes=axes), bases, hydra, now)
    _put_hydra(config, points)
    return Described(points, config, typed)


def _picked(sweep: ParsedSweep, picks: dict[str, int]) -> list[Any]:
    return [column.value(picks[column.key]) for column in sweep.columns if column.group]


def _checked(column: Column, config: DictConfig) -> Column:
    return column if column.group else checked(column, config)


def _answer_as_point(config: DictConfig, number: int) -> None:
    with open_dict(config):
        config.hydra.job.num = number
        config.hydra.job.id = str(number)
        folder = str(_SOMEWHERE.with_name(f"{number:05d}").absolute())
        config.hydra.run.dir = config.hydra.runtime.output_dir = folder


def _put_hydra(config: DictConfig, points: Points) -> None:
    """What Hydra would say in the first point's own config."""
    words = points.line_of(0)
    with open_dict(config):
        config.hydra.overrides.task = words
        named: Any = OmegaConf.to_container(config.hydra.job.config.override_dirname)
        config.hydra.job.override_dirname = override_dirname(words, named)


def _refuse_dependence(axes: list[Axis], config: DictConfig, first_needs: dict[str, Any]) -> None:
    """What the script is made from reads other keys: none of them may be swept to another effect."""
    _answer_as_point(config, 1)
    try:
        refuse_difference(first_needs, needs(config), "hydra.job", "the number or folder of a point")
    finally:
        _answer_as_point(config, 0)
    for axis in axes:
        for column in axis.columns:
            if not column.group:
                refuse_influence(config, column, first_needs)


def _further(
    sweep: ParsedSweep,
    session: Composer,
    picks: dict[str, int],
    hydra: list[dict[str, Any]],
    first_needs: dict[str, Any],
    now: float,
) -> Base:
    """The base for another combination of choices, the axes checked on it too."""
    config = session.compose(sweep.words(picks))
    where = ", ".join(f"{column.key}={column.value(picks[column.key])}" for column in sweep.columns if column.group)
    if sweeper_params(config) != sweep.params:
        raise ConfigError("has another hydra.sweeper.params; give the axes on the command line", where)
    found = options(config)
    if found != sweep.options:
        raise ConfigError("sets other keys of sweep; all points share them", where)
    base = base_of(config, _picked(sweep, picks), hydra)
    _answer_as_point(config, 0)
    try:
        with hydra_answers(config, now):
            for column in sweep.columns:
                if not column.group:
                    check_on(column, config)
            settings(config)
            refuse_difference(first_needs, needs(config), where, None)
    except ConfigError as error:
        raise error if where in str(error) else ConfigError(f"{error} (with {where})") from error
    return base


def _points(sweep: ParsedSweep, bases: list[Base], hydra: list[dict[str, Any]], now: float) -> Points:
    search = sweep.options.sweep.search is not None
    points = Points(
        axes=sweep.axes,
        bases=bases,
        hydra=hydra,
        line=_line(sweep),
        kind="search" if search else "grid",
        trials=sweep.options.sweep.trials if search else None,
        folder=sweep.options.folder,
        imports=sweep.options.imports,
        described=now,
        cwd=os.getcwd(),
    )
    if sweep.options.skip is not None:
        points = replace(points, kept=kept(points, sweep.options.skip))
    return replace(points, numbered=numbered(points))


def _line(sweep: ParsedSweep) -> list[str | int]:
    """What Hydra calls the task's overrides, for each point; a swept key stands there by its column's number."""
    places = {column.key: number for number, column in enumerate(sweep.columns)}
    found: list[str | int] = []
    for part in sweep.parts:
        if not isinstance(part, Fixed):
            found.append(places[part.key])
        elif not (part.override.is_hydra_override() or part.key.startswith("sweep.")):
            found.append(part.word)
    return found
