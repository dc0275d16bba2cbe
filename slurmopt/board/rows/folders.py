"""Finds the folders of runs and sweeps, and looks again only where something may have changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.all_runs import is_run_folder, runs_of_name
from slurmopt.runs.ownership import owner_of

_RECENT = 30.0
"""Seconds for which a folder that has changed is looked at again each time: a launch makes a run's folder before it
writes the journal, and the times of a file system are coarse."""


class Folders:
    """The runs in some folders."""

    def __init__(self, places: list[Path], of_mine: list[Path] | None = None) -> None:
        """`of_mine`: further folders, of which only this user's own runs count."""
        self.places = [place.absolute() for place in places]
        self._of_mine = [place.absolute() for place in of_mine or []]
        self._times: dict[Path, int] = {}
        self._names: dict[Path, list[Path]] = {}
        self._runs: dict[Path, list[RunFolder]] = {}
        self._found: list[RunFolder] = []

    def find(self) -> list[RunFolder]:
        """All folders of runs and sweeps, those launched last first. The same list where nothing has changed."""
        found: dict[Path, RunFolder] = {}
        for place in (*self.places, *self._of_mine):
            for name in self._names_in(place):
                found.update({run.path: run for run in self._runs_in(name, place in self._of_mine)})
        if found.keys() != {run.path for run in self._found}:
            self._found = sorted(found.values(), key=lambda run: run.path.name, reverse=True)
        return self._found

    def _names_in(self, place: Path) -> list[Path]:
        if self._may_differ(place):
            self._names[place] = _subfolders(place)
        return self._names[place]

    def _runs_in(self, name: Path, only_mine: bool) -> list[RunFolder]:
        if self._may_differ(name):
            runs = [] if is_run_folder(name) else runs_of_name(name)
            self._runs[name] = [run for run in runs if not only_mine or owner_of(run) is None]
        return self._runs[name]

    def _may_differ(self, folder: Path) -> bool:
        """Whether it was not read yet, or has changed since or a moment ago."""
        changed, before = _changed(folder), self._times.get(folder)
        self._times[folder] = changed
        return changed != before or changed > time.time_ns() - int(_RECENT * 1e9)


def _changed(folder: Path) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _subfolders(place: Path) -> list[Path]:
    try:
        with os.scandir(place) as entries:
            return [place / entry.name for entry in entries if not entry.name.startswith(".")]
    except OSError:
        return []
