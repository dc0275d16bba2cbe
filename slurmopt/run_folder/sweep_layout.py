"""Names every file that a sweep leaves.

runs/NAME/ID/
  points.json       what the points are; written once
  sweep.json        which array task of which job has which points
  config.yaml       the config of the first point, for people
  overrides.yaml    what was typed on the command line
  job.sbatch        the one script of all array tasks
  supervisor.sh     what it has in common with all others
  events.jsonl      the sweep's journal
  environment.txt   versions, git commit and diff, host
  logs/             job-A_a.log: what Slurm and the batch shell of an array task said
  points/00017/     point 17, a run folder: config.yaml events.jsonl logs/ heartbeat/ checkpoints/
  tasks/S-T/        array task T of submission S, where it starts points itself: its journal tells of them, and
                    `slurmopt.run_folder.archive` of what else it keeps of them
  by-name/          links to the points, where `sweep.folder` names them
  study.journal     Optuna's study, where there is a search
  cancelled         points that must not start any more: "3-9,17"
  more              what has not been submitted yet: the array tasks look after it
  runner.json       of a sweep on one machine, without Slurm: its runner, and which array tasks run and have ended
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.layout import RunFolder

_POINT = re.compile(r"[0-9]{5,12}")


@dataclass(frozen=True)
class SweepFolder:
    """One sweep's folder. `path` is absolute."""

    path: Path

    @property
    def run(self) -> RunFolder:
        """The same folder as that of a run: journal, config and script have the same names."""
        return RunFolder(self.path)

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def name(self) -> str:
        return self.path.parent.name

    @property
    def points_file(self) -> Path:
        return self.path / "points.json"

    @property
    def sweep_file(self) -> Path:
        return self.path / "sweep.json"

    @property
    def script(self) -> Path:
        return self.run.script

    @property
    def events(self) -> Path:
        return self.run.events

    @property
    def config(self) -> Path:
        return self.run.config

    @property
    def logs(self) -> Path:
        return self.run.logs

    @property
    def points(self) -> Path:
        return self.path / "points"

    @property
    def tasks(self) -> Path:
        return self.path / "tasks"

    @property
    def by_name(self) -> Path:
        return self.path / "by-name"

    @property
    def study(self) -> Path:
        return self.path / "study.journal"

    @property
    def cancelled(self) -> Path:
        return self.path / "cancelled"

    @property
    def more(self) -> Path:
        return self.path / "more"

    @property
    def runner(self) -> Path:
        return self.path / "runner.json"

    def point(self, number: int) -> RunFolder:
        return RunFolder(self.points / f"{number:05d}")

    def packed_point(self, number: int, task: str) -> RunFolder:
        """The folder of a point that the array task `task`, such as 0-3, starts itself."""
        name = f"{number:05d}"
        return RunFolder(self.points / name, self.tasks / task / "points" / name)

    def packed_points(self, task: str) -> list[int]:
        """The points whose records the array task `task` keeps in separate files."""
        try:
            names = os.listdir(held(self.tasks / task / "points"))
        except FileNotFoundError:
            return []
        return [int(name) for name in names if _POINT.fullmatch(name) and name == f"{int(name):05d}"]

    def task(self, submission: int, task: int) -> RunFolder:
        return RunFolder(self.tasks / f"{submission}-{task}")


def is_sweep(path: Path) -> bool:
    """Whether a folder is that of a sweep: its points are written before anything is submitted."""
    return (path / "points.json").is_file()


def sweep_of(run: RunFolder) -> SweepFolder | None:
    """The sweep that a run is a point or an array task of."""
    return SweepFolder(run.path.parent.parent) if run.in_sweep else None


def point_number(run: RunFolder) -> int | None:
    """The number of a run that is a point of a sweep."""
    if run.path.parent.name != "points" or not _POINT.fullmatch(run.path.name):
        return None
    return int(run.path.name) if sweep_of(run) is not None else None
