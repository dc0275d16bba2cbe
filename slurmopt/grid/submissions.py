"""Reads and writes `sweep.json`: which array task of which array job has which points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmopt.errors import ConfigError, one_line
from slurmopt.grid.point_ranges import Ranges
from slurmopt.run_folder.access.files import read_json, read_text, replace_json
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.sweep_layout import SweepFolder


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One array job of a sweep."""

    number: int
    """0, 1, …; the S in tasks/S-T."""
    points: Ranges
    per_task: int
    packed: bool
    """Whether its array tasks have folders of their own (tasks/S-T), because points share them."""
    job: str | None
    """Slurm's id of the array job; None where it is not known whether there is one."""
    token: str | None = None
    tasks: int | None = None
    """In a search: the number of array tasks, its workers. None: as many as the points need."""
    among: Ranges | None = None
    """The points by which the array tasks are numbered, where `points` are only some of these: a retry keeps the
    numbers of the array tasks. None: `points`."""

    @property
    def size(self) -> int:
        """The number of its array tasks."""
        return self.tasks if self.tasks is not None else -(-len(self.points) // self.per_task)

    def points_of(self, task: int) -> Ranges:
        """The points of array task `task`; in a search, whose workers share all points, all."""
        if self.tasks is not None:
            return self.points
        return self.points_between(task, task)

    def points_between(self, first: int, last: int) -> Ranges:
        """The points of array tasks `first` to `last`; not for a search."""
        points = self.numbered.slice(first * self.per_task, (last + 1) * self.per_task)
        return points if self.among is None else points.intersection(self.points)

    @property
    def numbered(self) -> Ranges:
        """The points by which the array tasks are numbered."""
        return self.points if self.among is None else self.among

    def task_of(self, point: int) -> int | None:
        """The array task that has `point`; None where none has it, and in a search, where any worker may get it."""
        if self.tasks is not None or point not in self.points:
            return None
        return self.numbered.position(point) // self.per_task

    @property
    def array(self) -> Ranges:
        """The numbers of its array tasks."""
        return Ranges([(0, self.tasks - 1)]) if self.tasks is not None else self.tasks_of(self.points)

    def tasks_of(self, points: Ranges) -> Ranges:
        """The array tasks that have `points`, which must all be its own; not for a search."""
        places = [(self.numbered.position(first), self.numbered.position(last)) for first, last in points.spans]
        return Ranges((first // self.per_task, last // self.per_task) for first, last in places)

    def as_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "job": self.job,
            "token": self.token,
            "points": str(self.points),
            "per_task": self.per_task,
            "packed": self.packed,
            "tasks": self.size,
            "shared": self.tasks is not None,
            **({} if self.among is None else {"among": str(self.among)}),
        }


def read(path: Path) -> list[Submission]:
    """The submissions of a sweep.json, oldest first; none where there is no file. ConfigError where it is damaged."""
    try:
        value = read_json(path)
        if value is None:
            return []
        return [_submission(entry) for entry in value["submissions"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is damaged: {error}; its journal events.jsonl tells of the same jobs") from error


def _submission(value: Mapping[str, Any]) -> Submission:
    return Submission(
        number=int(value["number"]),
        points=Ranges.parse(value["points"]),
        per_task=int(value["per_task"]),
        packed=bool(value["packed"]),
        job=None if value["job"] is None else str(value["job"]),
        token=value.get("token"),
        tasks=int(value["tasks"]) if value.get("shared") else None,
        among=Ranges.parse(value["among"]) if "among" in value else None,
    )


def points_of_newer(submissions: Iterable[Submission], number: int) -> Ranges:
    """The points that submissions after `number` have: a point belongs to its newest submission. None in a search,
    whose array tasks share the points."""
    return Ranges(
        span for entry in submissions if entry.number > number and entry.tasks is None for span in entry.points.spans
    )


def cancelled(sweep: SweepFolder) -> Ranges:
    """The cancelled points, which must not start. OSError where the file cannot be read, ConfigError where it is
    damaged."""
    try:
        if held(sweep.cancelled).is_symlink():  # slurmopt makes none
            raise ConfigError(_damaged(sweep, "a link"))
        return Ranges.parse(read_text(sweep.cancelled).strip())
    except FileNotFoundError:
        return Ranges()
    except ValueError as error:  # its message could show another file's text
        raise ConfigError(_damaged(sweep, "no list of points such as 3,7-9")) from error


def _damaged(sweep: SweepFolder, description: str) -> str:
    points = one_line(f"{sweep.name}/{sweep.id}/POINTS")
    return f"{sweep.cancelled} is damaged: it is {description}; move it away, and repeat slurmopt cancel {points}"


def write(path: Path, count: int, submissions: list[Submission]) -> None:
    """Replaces sweep.json; `count`: how many points the sweep has."""
    replace_json(path, {"points": count, "submissions": [entry.as_json() for entry in submissions]})
