"""Finds the folders of runs and sweeps, and looks again only where something may have changed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.all_runs import is_run_folder, runs_of_name

_RECENT = 30.0
"""Seconds for which a folder that has changed is looked at again each time: a launch makes a run's folder before it
writes the journal, and the times of a file system are coarse."""


@dataclass
class _Known:
    changed: int
    runs: list[RunFolder]


class Folders:
    """The runs in some folders."""

    def __init__(self, places: list[Path]) -> None:
        self.places = [place.absolute() for place in places]
        self._names: dict[Path, list[Path]] = {}
        self._times: dict[Path, int] = {}
        self._known: dict[Path, _Known] = {}

    def find(self) -> list[RunFolder]:
        """All folders of runs and sweeps, those of which the name was launched last first."""
        runs: list[RunFolder] = []
        for place in self.places:
            for name in self._names_in(place):
                runs += self._runs_in(name)
        return sorted(runs, key=lambda run: run.path.name, reverse=True)

    def _names_in(self, place: Path) -> list[Path]:
        changed = _changed(place)
        if self._is_same(changed, self._times.get(place)):
            return self._names[place]
        self._times[place] = changed
        self._names[place] = _subfolders(place)
        return self._names[place]

    def _runs_in(self, name: Path) -> list[RunFolder]:
        changed, known = _changed(name), self._known.get(name)
        if known is not None and self._is_same(changed, known.changed):
            return known.runs
        self._known[name] = _Known(changed, [] if is_run_folder(name) else runs_of_name(name))
        return self._known[name].runs

    def _is_same(self, changed: int, before: int | None) -> bool:
        return changed == before and changed < time.time_ns() - int(_RECENT * 1e9)


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
