"""Parses a sweep: the typed overrides, those that the composed config adds, and the axes of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omegaconf import DictConfig

from slurmopt.errors import ConfigError
from slurmopt.grid.axes import Axis, Column, Interval
from slurmopt.grid.resolvers import import_modules
from slurmopt.sweeps.definition.axes import Fixed, parse_overrides
from slurmopt.sweeps.definition.axis_conflicts import Part, make_axes, merge_parts
from slurmopt.sweeps.definition.hydra_compositions import Composer
from slurmopt.sweeps.definition.options import Options, options, sweeper_params
from slurmopt.sweeps.definition.points_from_file import KEY, read_points


@dataclass(frozen=True)
class ParsedSweep:
    """A sweep whose axes are known, but not checked yet."""

    parts: list[Part]
    """All overrides in Hydra's order, those of a points file included."""
    axes: list[Axis]
    options: Options
    config: DictConfig
    """Composed for the first point's choices; the swept values are not set."""
    params: dict[str, object]

    @property
    def columns(self) -> list[Column]:
        return [column for axis in self.axes for column in axis.columns]

    def overrides(self, picks: Mapping[str, int]) -> list[str]:
        """The overrides to compose for a combination of choices. `picks`: group key → index of its value."""
        return base_overrides(self.parts, picks)


def parse_sweep(session: Composer, overrides: list[str]) -> ParsedSweep:
    """Composes once, or twice where the config adds choices that the first composition did not have."""
    typed = parse_overrides(overrides, session)
    file = _typed_file(typed, session)
    parts = [*(file.columns if file else ()), *typed]
    config = session.compose(base_overrides(parts, {}))
    params = sweeper_params(config)
    if params:
        added = parse_overrides([f"{key}={value}" for key, value in params.items()], session)
        parts = merge_parts(added, parts)
    sweep_options = options(config)
    if file is None and sweep_options.sweep.points is not None:
        file = read_points(sweep_options.sweep.points, session.is_group)
        parts = [*file.columns, *parts]
    if base_overrides(parts, {}) != base_overrides(typed, {}):
        config = session.compose(base_overrides(parts, {}))
        sweep_options = options(config)
    import_modules(sweep_options.imports)
    axes = make_axes(parts, sweep_options.sweep.zip, file)
    _check_kind(axes, sweep_options)
    return ParsedSweep(parts, axes, sweep_options, config, params)


def base_overrides(parts: list[Part], picks: Mapping[str, int]) -> list[str]:
    """The overrides to compose: those that all points share, and the choices of config groups."""
    overrides = []
    for part in parts:
        if isinstance(part, Fixed):
            overrides.append(part.typed)
        elif part.group:
            overrides.append(part.override(picks.get(part.key, 0)))
    return overrides


def _typed_file(parts: list[Part], session: Composer) -> Axis | None:
    """The points file named on the command line. It is read first, because it may hold choices that the config
    needs."""
    paths = [part.override.value() for part in parts if isinstance(part, Fixed) and part.key == KEY]
    return read_points(str(paths[-1]), session.is_group) if paths and paths[-1] is not None else None


def _check_kind(axes: list[Axis], sweep_options: Options) -> None:
    for column in (column for axis in axes for column in axis.columns):
        if not isinstance(column.values, Interval):
            continue
        if sweep_options.sweep.search is None:
            raise ConfigError("an interval has no end of values; give some, or search: sweep.search=tpe", column.key)
        if column.group:
            raise ConfigError("is a config group, which has names and no interval", column.key)
    if sweep_options.sweep.search is None:
        return
    if any(len(axis.columns) > 1 for axis in axes):
        raise ConfigError("a search chooses each key by itself; leave out sweep.zip and sweep.points", "sweep.search")
    if sweep_options.skip is not None:
        raise ConfigError("is for grids; a search learns by itself what to leave out", "sweep.skip")
