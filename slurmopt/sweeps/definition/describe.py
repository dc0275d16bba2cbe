"""Describes the sweep of a multirun (`-m`): parses and checks its overrides, and composes each combination of
config-group choices once."""

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
from slurmopt.sweeps.definition.duplicates import refuse_equal_values
from slurmopt.sweeps.definition.group_choices import base_of, combinations
from slurmopt.sweeps.definition.hydra_compositions import Composer, composer
from slurmopt.sweeps.definition.options import options, sweeper_params
from slurmopt.sweeps.definition.parsed_sweep import ParsedSweep, parse_sweep
from slurmopt.sweeps.definition.shared_config import (
    has_interpolations,
    refuse_difference,
    refuse_influence,
    refuse_shared_key,
    shared_values,
)
from slurmopt.sweeps.definition.skip import kept_places
from slurmopt.sweeps.definition.unique_names import points_needing_numbers
from slurmopt.sweeps.definition.values import check_column, check_on

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings

_SOMEWHERE = Path("points") / "00000"


@dataclass(frozen=True)
class Described:
    """A sweep as the launch plans it."""

    points: Points
    config: DictConfig
    """The composed config of the first point, Hydra's node included, unresolved."""
    settings: Settings
    """The typed groups of `config`. `${hydra:runtime.output_dir}` is a placeholder there: each point has its own
    folder."""


def describe_sweep(overrides: list[str], config_dir: str | None = None) -> Described:
    """Parses the axes, composes and checks. Writes nothing, and calls neither Slurm nor other hosts.

    Raises ConfigError for a sweep without points or with equal ones, for an unknown key, a value of the wrong type, and
    whatever Hydra refuses.
    """
    with composer(overrides, config_dir) as session:
        return _described(parse_sweep(session, overrides), session)


def _described(sweep: ParsedSweep, session: Composer) -> Described:
    described_at = time.time()
    for column in sweep.columns:
        refuse_shared_key(column)
    refuse_equal_values([axis for axis in sweep.axes if axis.groups])
    picks, *others = combinations(sweep.axes)
    hydra: list[dict[str, Any]] = []
    config = sweep.config
    bases = [base_of(config, _picked(sweep, picks), hydra)]
    _answer_as_point(config, 0)
    with hydra_answers(config, described_at):
        axes = [Axis(tuple(_checked(column, config) for column in axis.columns)) for axis in sweep.axes]
        refuse_equal_values(axes)
        typed = settings(config)
        first_needs = shared_values(config)
        if has_interpolations(config):
            _refuse_dependence(axes, config, first_needs)
    for choice in others:
        bases.append(_other_base(replace(sweep, axes=axes), session, choice, hydra, first_needs, described_at))
    points = _points(replace(sweep, axes=axes), bases, hydra, described_at)
    _put_hydra(config, points)
    return Described(points, config, typed)


def _picked(sweep: ParsedSweep, picks: dict[str, int]) -> list[Any]:
    return [column.value(picks[column.key]) for column in sweep.columns if column.group]


def _checked(column: Column, config: DictConfig) -> Column:
    return column if column.group else check_column(column, config)


def _answer_as_point(config: DictConfig, number: int) -> None:
    with open_dict(config):
        config.hydra.job.num = number
        config.hydra.job.id = str(number)
        folder = str(_SOMEWHERE.with_name(f"{number:05d}").absolute())
        config.hydra.run.dir = config.hydra.runtime.output_dir = folder


def _put_hydra(config: DictConfig, points: Points) -> None:
    """Sets Hydra's node as in the first point's own config."""
    overrides = points.line_of(0)
    with open_dict(config):
        config.hydra.overrides.task = overrides
        named: Any = OmegaConf.to_container(config.hydra.job.config.override_dirname)
        config.hydra.job.override_dirname = override_dirname(overrides, named)


def _refuse_dependence(axes: list[Axis], config: DictConfig, first_needs: dict[str, Any]) -> None:
    """ConfigError where an axis changes a key that the script is made from, through an interpolation."""
    _answer_as_point(config, 1)
    try:
        refuse_difference(first_needs, shared_values(config), "hydra.job", "the number or folder of a point")
    finally:
        _answer_as_point(config, 0)
    for axis in axes:
        for column in axis.columns:
            if not column.group:
                refuse_influence(config, column, first_needs)


def _other_base(
    sweep: ParsedSweep,
    session: Composer,
    picks: dict[str, int],
    hydra: list[dict[str, Any]],
    first_needs: dict[str, Any],
    described_at: float,
) -> Base:
    """The base for another combination of choices; the axes are checked on it too."""
    config = session.compose(sweep.overrides(picks))
    where = ", ".join(f"{column.key}={column.value(picks[column.key])}" for column in sweep.columns if column.group)
    if sweeper_params(config) != sweep.params:
        raise ConfigError("has another hydra.sweeper.params; give the axes on the command line", where)
    other_options = options(config)
    if other_options != sweep.options:
        raise ConfigError("sets other keys of sweep; all points share them", where)
    base = base_of(config, _picked(sweep, picks), hydra)
    _answer_as_point(config, 0)
    try:
        with hydra_answers(config, described_at):
            for column in sweep.columns:
                if not column.group:
                    check_on(column, config)
            settings(config)
            refuse_difference(first_needs, shared_values(config), where, None)
    except ConfigError as error:
        raise error if where in str(error) else ConfigError(f"{error} (with {where})") from error
    return base


def _points(sweep: ParsedSweep, bases: list[Base], hydra: list[dict[str, Any]], described_at: float) -> Points:
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
        described=described_at,
        cwd=os.getcwd(),
    )
    if sweep.options.skip is not None:
        points = replace(points, kept=kept_places(points, sweep.options.skip))
    return replace(points, numbered=points_needing_numbers(points))


def _line(sweep: ParsedSweep) -> list[str | int]:
    """The task overrides of a point, as in `hydra.overrides.task`; a swept key is represented by its column's
    number."""
    places = {column.key: number for number, column in enumerate(sweep.columns)}
    line: list[str | int] = []
    for part in sweep.parts:
        if not isinstance(part, Fixed):
            line.append(places[part.key])
        elif not (part.override.is_hydra_override() or part.key.startswith("sweep.")):
            line.append(part.word)
    return line
