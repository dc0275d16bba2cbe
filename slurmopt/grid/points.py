"""Computes the points of a sweep from their numbers: `points.json` stores axes and base configs, never the points."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from slurmopt.config.composition.resolved import resolved
from slurmopt.errors import ConfigError, one_line
from slurmopt.grid.assign import assign
from slurmopt.grid.axes import Axis, Column, Interval
from slurmopt.grid.base_configs import Base, may_read_hydra, override_dirname, picks_key
from slurmopt.grid.override_syntax import override_value
from slurmopt.grid.point_names import fill, readable
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.resolvers import hydra_answers, import_modules

KINDS = ("grid", "search", "hydra")


@dataclass(frozen=True, kw_only=True)
class Points:
    """All points of one sweep.

    In a grid, point i is the i-th of the product of the axes that `sweep.skip` keeps; the last axis varies fastest, as
    in Hydra. In a search, the values of a point are known once the search has chosen them: pass them as `values`. The
    points of Hydra's launcher plugin (`hydra`) compose their configs themselves: their values are only shown."""

    axes: list[Axis]
    bases: list[Base]
    hydra: list[dict[str, Any]]
    """Hydra's own nodes, unresolved: usually one."""
    line: list[str | int] = field(default_factory=list)
    """The overrides in the order Hydra applies them; a swept one is the number of its column."""
    kind: str = "grid"
    trials: int | None = None
    """In a search: how many points it tries."""
    kept: Ranges | None = None
    """The places in the product that `sweep.skip` keeps; None: all."""
    folder: str | None = None
    """`sweep.folder`, unresolved."""
    numbered: Ranges | None = field(default_factory=Ranges)
    """The points whose readable names end with their number, because another point would have the same; None: all."""
    imports: tuple[str, ...] = ()
    """`launch.imports`: modules that register resolvers."""
    described: float = 0.0
    """When the sweep was described (seconds since the epoch), for `${now:…}`."""
    cwd: str = ""
    """The working directory of the launch."""

    def __len__(self) -> int:
        if self.trials is not None:
            return self.trials
        return len(self.kept) if self.kept is not None else self.product

    @property
    def product(self) -> int:
        """How many points there would be without `sweep.skip`."""
        return math.prod(map(len, self.axes))

    @property
    def width(self) -> int:
        """The number of digits of the largest number, as `number` writes it."""
        return len(self.number(max(0, len(self) - 1)))

    @cached_property
    def columns(self) -> list[Column]:
        """Every swept key, in the order of the axes."""
        return [column for axis in self.axes for column in axis.columns]

    def number(self, point: int) -> str:
        """The point's number as in the name of its folder."""
        return f"{point:05d}"

    def values(self, point: int) -> dict[str, Any]:
        """Axis key → value; for a config group the name of the choice."""
        return {column.key: column.value(at) for column, at in self._places(point)}

    def places(self, key: str) -> tuple[Sequence[Any], Callable[[int], int]]:
        """The values of an axis, and a function from a point to the index of its value. Not for a search."""
        stride, kept = 1, self.kept
        for axis in reversed(self.axes):
            if key in axis.keys:
                break
            stride *= len(axis)
        (column,) = (column for column in axis.columns if column.key == key)
        assert not isinstance(column.values, Interval)
        size = len(axis)
        if kept is None:
            return column.values, lambda point: point // stride % size
        return column.values, lambda point: kept[point] // stride % size

    @property
    def first(self) -> dict[str, Any]:
        """The first value of each axis; for an interval its start."""
        return {column.key: column.first for column in self.columns}

    def overrides(self, point: int, values: dict[str, Any] | None = None) -> list[str]:
        """The point's own overrides, in Hydra's syntax."""
        if values is not None:
            return [f"{column.prefix}{column.key}={override_value(values[column.key])}" for column in self.columns]
        return [column.override(at) for column, at in self._places(point)]

    def line_of(self, point: int, values: dict[str, Any] | None = None) -> list[str]:
        """All overrides of the point, the shared ones included, in the order in which Hydra applies them."""
        if values is None and self.kind == "search":
            values = self.first
        own = self.overrides(point, values)
        return [own[item] if isinstance(item, int) else item for item in self.line]

    def config(self, point: int, run_path: Path, values: dict[str, Any] | None = None) -> dict[str, Any]:
        """The content of the point's config.yaml: resolved, except for what reads the environment.

        `run_path`: the point's folder, which is Hydra's output folder in `${hydra:…}`. For a search without `values`:
        as for a point with the first value of each axis. Raises ConfigError that names the key."""
        import_modules(self.imports)
        root = self._root(point, run_path, values, lean=True)
        with hydra_answers(root, self.described):
            return resolved(root, "hydra", _explain)

    def root(self, point: int, run_path: Path, values: dict[str, Any] | None = None) -> DictConfig:
        """The point's config with Hydra's node, unresolved."""
        return self._root(point, run_path, values, lean=False)

    def _root(self, point: int, run_path: Path, values: dict[str, Any] | None, lean: bool) -> DictConfig:
        """`lean`: leaves out Hydra's node where nothing reads it."""
        if values is None and self.kind == "search":
            values = self.first
        point_values = self.values(point) if values is None else values
        base = self.base(point_values)
        leave_out = lean and not (base.asks_hydra or may_read_hydra(point_values))
        root = base.root({} if leave_out else self._hydra(base, point, run_path, values))
        for column in self.columns:
            if not column.group and self.kind != "hydra":
                _set(root, column, point_values[column.key])
        return root

    def name(self, point: int, values: dict[str, Any] | None = None) -> str | None:
        """The readable name from `sweep.folder`; None where there is none."""
        if self.folder is None:
            return None
        number = self.number(point) if self.numbered is None or point in self.numbered else None
        return readable(self.filled_name(point, values), number)

    def filled_name(self, point: int, values: dict[str, Any] | None = None) -> str:
        """`sweep.folder` with its references filled in; not yet a valid folder name."""
        point_values = self.values(point) if values is None else values

        def root() -> DictConfig:
            return self.root(point, Path("."), values)

        return fill(self.folder or "", point_values, root, self.described)

    def _places(self, point: int) -> list[tuple[Column, int]]:
        """Each column, with the index of the point's value."""
        if self.kind == "search":
            raise ConfigError(f"the values of point {point} are known once the search has chosen them")
        if not 0 <= point < len(self):
            raise ConfigError(f"there is no point {point}; the sweep has {len(self)}")
        remainder = point if self.kept is None else self.kept[point]
        indices: list[int] = []
        for axis in reversed(self.axes):
            remainder, index = divmod(remainder, len(axis))
            indices.insert(0, index)
        return [(column, index) for axis, index in zip(self.axes, indices, strict=True) for column in axis.columns]

    @cached_property
    def _by_picks(self) -> dict[str, Base]:
        return {picks_key(base.picks): base for base in self.bases}

    def base(self, values: dict[str, Any]) -> Base:
        """The base config of a point with these values."""
        picks = [values[column.key] for column in self.columns if column.group]
        try:
            return self._by_picks[picks_key(picks)]
        except KeyError:
            raise ConfigError(f"the sweep was not composed for {picks}") from None

    def _hydra(self, base: Base, point: int, run_path: Path, values: dict[str, Any] | None) -> dict[str, Any]:
        """Hydra's node as in this point's job."""
        overrides = self.line_of(point, values)
        node = self.hydra[base.hydra]
        job = node.get("job", {})
        dirname = override_dirname(overrides, job.get("config", {}).get("override_dirname", {}))
        return {
            **node,
            "job": {**job, "num": point, "id": str(point), "override_dirname": dirname},
            "run": {**node.get("run", {}), "dir": str(run_path)},
            "runtime": {**node.get("runtime", {}), "output_dir": str(run_path), "choices": base.choices},
            "overrides": {**node.get("overrides", {}), "task": overrides},
        }


def _set(root: DictConfig, column: Column, value: Any) -> None:
    try:
        assign(root, column.key, value, column.prefix)
    except OmegaConfBaseException as error:
        raise _explain(error) from error


def _explain(error: OmegaConfBaseException) -> ConfigError:
    """The error in one line. `slurmopt.config.composition.error_messages` says more, but needs Hydra."""
    lines = str(error.msg or error).splitlines() or [type(error).__name__]
    return ConfigError(f"cannot be resolved: {one_line(lines[0])}", error.full_key or None)
