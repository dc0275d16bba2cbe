"""Reads and writes points.json, which the launch writes once and every array task reads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurmopt.errors import ConfigError, why_failed
from slurmopt.grid.axes import Axis, column_from, column_json
from slurmopt.grid.base_configs import Base
from slurmopt.grid.codec import decode, encode
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.points import KINDS, Points
from slurmopt.run_folder.access.files import NotRegular, read_whole, replace_text

FORMAT = 1
_LARGEST = 256 << 20
"""Bytes; a million points that are listed one by one take fewer."""


def save(points: Points, path: Path) -> None:
    """Writes the file atomically."""
    replace_text(path, json.dumps(_as_json(points)) + "\n")


def load(path: Path) -> Points:
    """Reads the file. ConfigError where it is damaged, written by a newer slurmopt, or cannot be read."""
    try:
        value = json.loads(read_whole(path, _LARGEST))
        if value["format"] != FORMAT:
            raise ConfigError(f"{path} is of format {value['format']}; this slurmopt reads {FORMAT}: update it")
        return _from_json(value)
    except NotRegular as error:
        raise ConfigError(f"{path} is damaged: it is not a regular file; launch the sweep again") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {why_failed(error)}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged ({type(error).__name__}: {error}); launch the sweep again") from error


def same_points(first: Points, second: Points) -> bool:
    """Whether two descriptions are of the same points, in any order that a shuffle may have made."""
    return len(first) == len(second) and _essence(first) == _essence(second)


def _essence(points: Points) -> Any:
    bases = [replace(base, config=_without_id(base.config)) for base in points.bases]
    held = {key: value for key, value in _as_json(replace(points, bases=bases)).items() if key not in _OF_THE_MOMENT}
    columns = [column for axis in points.axes for column in map(column_json, axis.columns)]
    for column in columns:
        column.pop("words", None)
        if isinstance(values := column.get("values"), list):
            column["values"] = sorted(values, key=json.dumps)
    return json.loads(json.dumps({**held, "axes": columns}))


def _without_id(config: dict[str, Any]) -> dict[str, Any]:
    """Removes the ID of the launch: a launch that broke off is repeated with the ID that was made for it."""
    launch = config.get("launch")
    return {**config, "launch": {**launch, "id": None}} if isinstance(launch, dict) else config


_OF_THE_MOMENT = ("described", "kept", "numbered", "line")
"""What differs between two descriptions of the same points: the time, what counts in a shuffled order, and the words
that were typed."""


def _as_json(points: Points) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "kind": points.kind,
        "count": len(points),
        "trials": points.trials,
        "axes": [[column_json(column) for column in axis.columns] for axis in points.axes],
        "kept": None if points.kept is None else str(points.kept),
        "folder": points.folder,
        "numbered": None if points.numbered is None else str(points.numbered),
        "line": points.line,
        "imports": list(points.imports),
        "described": points.described,
        "cwd": points.cwd,
        "bases": [base.as_json() for base in points.bases],
        "hydra": encode(points.hydra),
    }


def _from_json(held: dict[str, Any]) -> Points:
    if held["kind"] not in KINDS:
        raise ValueError(f"unknown kind {held['kind']!r}")
    points = Points(
        axes=[Axis(tuple(map(column_from, columns))) for columns in held["axes"]],
        bases=[Base.from_json(base) for base in held["bases"]],
        hydra=decode(held["hydra"]),
        line=held["line"],
        kind=held["kind"],
        trials=held["trials"],
        kept=None if held["kept"] is None else Ranges.parse(held["kept"]),
        folder=held["folder"],
        numbered=None if held["numbered"] is None else Ranges.parse(held["numbered"]),
        imports=tuple(held["imports"]),
        described=held["described"],
        cwd=held["cwd"],
    )
    if len(points) != held["count"]:
        raise ValueError(f"it has {len(points)} points, and says {held['count']}")
    return points
