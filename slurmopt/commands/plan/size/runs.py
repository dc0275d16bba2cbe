"""The runs that `slurmopt plan size` looks at: those of a name, the points of a sweep, or all of a user by name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from slurmopt.commands.plan.size.needs import Sizing
from slurmopt.errors import RunError, one_line
from slurmopt.grid.point_ranges import Ranges
from slurmopt.report.run.used import used_by
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder, is_sweep
from slurmopt.runs.all_runs import all_folders, created, runs_of_name
from slurmopt.runs.find import Selection, select
from slurmopt.runs.ownership import owner_of

_MOST = 20
"""Runs of a name that are looked at, newest first."""
_MOST_POINTS = 100
"""Points of a sweep, the same."""
_MOST_NAMES = 200
"""Names of a user, the newest first."""


def of_name(word: str, folder: Path) -> Sizing:
    """The runs of a name, those in its sweeps too, or the points of the sweep that `word` names. Raises RunError."""
    shown = one_line(word)[:80]
    if own := _own(runs_of_name(folder / word)):
        return _sizing(word, _newest(own, _MOST))
    try:
        selected = select(word, folder)
    except RunError:
        selected = None
    if selected is None or (isinstance(selected, RunFolder) and selected.name != word.strip("/").partition("/")[0]):
        raise RunError(f"no runs of the name {shown} here; slurmopt list shows all")
    if isinstance(selected, RunFolder):
        raise RunError(f"{shown} is one run, which tells too little; valid: a name of runs, or a sweep")
    return _sizing(word, _points_of(selected))


def of_user(folder: Path) -> tuple[list[Sizing], list[str]]:
    """Each name of this user, and a line for each name that cannot be told."""
    by_name: dict[str, list[RunFolder]] = {}
    for run in sorted(_own(all_folders(folder)), key=created, reverse=True):
        by_name.setdefault(run.name, []).append(run)
    found, problems = [], []
    for name, runs in list(by_name.items())[:_MOST_NAMES]:
        try:
            found.append(_sizing(name, _newest(runs, _MOST)))
        except RunError as error:
            problems.append(one_line(str(error)))
    if len(by_name) > _MOST_NAMES:
        problems.append(f"{len(by_name) - _MOST_NAMES} older names are left out")
    return found, problems


def _own(runs: Sequence[RunFolder]) -> list[RunFolder]:
    return [run for run in runs if owner_of(run) is None]


def _newest(runs: Sequence[RunFolder], most: int) -> list[RunFolder]:
    """The newest, with the points of sweeps in place of the sweeps."""
    found: list[RunFolder] = []
    for run in sorted(runs, key=created, reverse=True):
        found += _started(SweepFolder(run.path), None, most) if is_sweep(run.path) else [run]
        if len(found) >= most:
            break
    return found[:most]


def _points_of(selected: Selection) -> list[RunFolder]:
    if not (found := _started(selected.sweep, selected.points, _MOST_POINTS)):
        raise RunError(f"{selected.label}: no point that has an array task of its own has started; others tell nothing")
    return found


def _started(sweep: SweepFolder, among: Ranges | None, most: int) -> list[RunFolder]:
    """The newest points with an array task of their own: what several used that share one is not measured apart."""
    try:
        names = os.listdir(sweep.points)
    except OSError:
        return []
    numbers = [int(name) for name in names if name.isascii() and name.isdecimal()]
    points = [sweep.point(at) for at in numbers if among is None or at in among]
    return sorted((one for one in points if os.path.lexists(one.events)), key=created, reverse=True)[:most]


def _sizing(name: str, runs: Sequence[RunFolder]) -> Sizing:
    """Raises RunError where nothing that was asked for can be read."""
    if not runs:
        raise RunError(f"{one_line(name)[:80]}: none of its runs has started an array task of its own")
    read = used_by(runs)
    if (resources := read[0].resources) is None:
        raise RunError(f"{one_line(read[0].label)}: {read[0].problem}")
    return Sizing(name=name, runs=[one for one in read if one.used is not None], resources=resources)
