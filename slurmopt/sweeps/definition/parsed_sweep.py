"""The first half of a description: what was typed, what the composed config adds to it, and the axes of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omegaconf import DictConfig

from slurmopt.errors import ConfigError
from slurmopt.grid.axes import Axis, Column, Interval
from slurmopt.grid.resolvers import import_modules
from slurmopt.sweeps.definition.axes import Fixed, split
from slurmopt.sweeps.definition.axis_conflicts import Part, arranged, merged
from slurmopt.sweeps.definition.compose import Composer
from slurmopt.sweeps.definition.options import Options, options, sweeper_params
from slurmopt.sweeps.definition.points_from_file import KEY, read_points


@dataclass(frozen=True)
class ParsedSweep:
    """A sweep whose axes are known, and not checked yet."""

    parts: list[Part]
    """All overrides in Hydra's order, of a file too."""
    axes: list[Axis]
    options: Options
    config: DictConfig
    """Composed for the first point's choices; the swept values are not set."""
    params: dict[str, object]

    @property
    def columns(self) -> list[Column]:
        return [column for axis in self.axes for column in axis.columns]

    def words(self, picks: Mapping[str, int]) -> list[str]:
        """What to compose for a combination of choices: group key → index of its value."""
        return words(self.parts, picks)


def draft(session: Composer, overrides: list[str]) -> ParsedSweep:
    """Composes once; twice where the config itself adds choices that the first time did not know."""
    typed = split(overrides, session)
    file = _typed_file(typed, session)
    parts = [*(file.columns if file else ()), *typed]
    config = session.compose(words(parts, {}))
    params = sweeper_params(config)
    if params:
        added = split([f"{key}={value}" for key, value in params.items()], session)
        parts = merged(added, parts)
    found = options(config)
    if file is None and found.sweep.points is not None:
        file = read_points(found.sweep.points, session.is_group)
        parts = [*file.columns, *parts]
    if _composed_words(parts) != _composed_words(typed):
        config = session.compose(words(parts, {}))
        found = options(config)
    import_modules(found.imports)
    axes = arranged(parts, found.sweep.zip, file)
    _check_kind(axes, found)
    return ParsedSweep(parts, axes, found, config, params)


def words(parts: list[Part], picks: Mapping[str, int]) -> list[str]:
    """The overrides that Hydra composes with: those that all points have, and the choices of config groups."""
    found = []
    for part in parts:
        if isinstance(part, Fixed):
            found.append(part.typed)
        elif part.group:
            found.append(part.override(picks.get(part.key, 0)))
    return found


def _composed_words(parts: list[Part]) -> list[str]:
    return words(parts, {})


def _typed_file(parts: list[Part], session: Composer) -> Axis | None:
    """The file named on the command line: read first, for it may hold the choices that a config needs."""
    named = [part.override.value() for part in parts if isinstance(part, Fixed) and part.key == KEY]
    return read_points(str(named[-1]), session.is_group) if named and named[-1] is not None else None


def _check_kind(axes: list[Axis], found: Options) -> None:
    for column in (column for axis in axes for column in axis.columns):
        if not isinstance(column.values, Interval):
            continue
        if found.sweep.search is None:
            raise ConfigError("an interval has no end of values; give some, or search: sweep.search=tpe", column.key)
        if column.group:
            raise ConfigError("is a config group, which has names and no interval", column.key)
    if found.sweep.search is None:
        return
    if any(len(axis.columns) > 1 for axis in axes):
        raise ConfigError("a search chooses each key by itself; leave out sweep.zip and sweep.points", "sweep.search")
    if found.skip is not None:
        raise ConfigError("is for grids; a search learns by itself what to leave out", "sweep.skip")
