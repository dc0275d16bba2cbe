"""Which array task of which job has which points: `sweep.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurmopt.errors import ConfigError, one_line
from slurmopt.grid.point_ranges import Ranges
from slurmopt.run_folder.files import read_json, read_text, replace_json
from slurmopt.run_folder.open_folders import held
from slurmopt.run_folder.sweep_layout import SweepFolder


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One array job of a sweep."""

    number: int
    """0, 1, …: also the S in tasks/S-T."""
    points: Ranges
    per_task: int
    packed: bool
    """Whether its array tasks have folders of their own (tasks/S-T), because a parent starts their points."""
    job: str | None
    """Slurm's id of the array job; None where nobody knows whether there is one."""
    token: str | None = None
    tasks: int | None = None
    """How many array tasks: of a search its workers. None: as many as the points need."""
    among: Ranges | None = None
    """The points that the array tasks are numbered by, where `points` are only some of these: a retry keeps the numbers
    that the array tasks had. None: `points`."""

    @property
    def size(self) -> int:
        """How many array tasks it has."""
        return self.tasks if self.tasks is not None else -(-len(self.points) // self.per_task)

    def points_of(self, task: int) -> Ranges:
        """The points of array task `task`; of a search, which shares them all, all."""
        if self.tasks is not None:
            return self.points
        return self.points_between(task, task)

    def points_between(self, first: int, last: int) -> Ranges:
        """The points of array tasks `first` to `last`, where each has its own."""
        found = self.numbered.slice(first * self.per_task, (last + 1) * self.per_task)
        return found if self.among is None else found.both(self.points)

    @property
    def numbered(self) -> Ranges:
        """The points that the array tasks are numbered by."""
        return self.points if self.among is None else self.among

    def task_of(self, point: int) -> int | None:
        """The array task that has `point`; None where none has, or nobody can say beforehand."""
        if self.tasks is not None or point not in self.points:
            return None
        return self.numbered.position(point) // self.per_task

    @property
    def array(self) -> Ranges:
        """The numbers of its array tasks."""
        return Ranges([(0, self.tasks - 1)]) if self.tasks is not None else self.tasks_of(self.points)

    def tasks_of(self, points: Ranges) -> Ranges:
        """The array tasks that have `points`, all of which must be its own, where each has its own."""
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
        return [_submission(one) for one in value["submissions"]]
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


def newer(submissions: Iterable[Submission], number: int) -> Ranges:
    """The points that submissions after `number` have: a point is its newest submission's. Of a search none, for its
    array tasks share the points."""
    return Ranges(span for one in submissions if one.number > number and one.tasks is None for span in one.points.spans)


def cancelled(sweep: SweepFolder) -> Ranges:
    """The points that must not start any more. OSError where nobody can tell, ConfigError where the file is damaged."""
    try:
        if held(sweep.cancelled).is_symlink():  # slurmopt makes none
            raise ConfigError(_damaged(sweep, "a link"))
        return Ranges.parse(read_text(sweep.cancelled).strip())
    except FileNotFoundError:
        return Ranges()
    except ValueError as error:  # whose text is not to be shown
        raise ConfigError(_damaged(sweep, "no list of points such as 3,7-9")) from error


def _damaged(sweep: SweepFolder, what: str) -> str:
    points = one_line(f"{sweep.name}/{sweep.id}/POINTS")
    return f"{sweep.cancelled} is damaged: it is {what}; move it away, and repeat slurmopt cancel {points}"


def write(path: Path, count: int, submissions: list[Submission]) -> None:
    """Replaces sweep.json; `count`: how many points the sweep has."""
    replace_json(path, {"points": count, "submissions": [one.as_json() for one in submissions]})
