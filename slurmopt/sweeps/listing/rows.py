"""The runs and sweeps of folders as rows: what `slurmopt list` prints of each."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from slurmopt.run_folder.json_values import number
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder, is_sweep
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.status.account import headline
from slurmopt.runs.status.progress import Progress
from slurmopt.runs.status.query import Status, gather
from slurmopt.runs.status.view import steps
from slurmopt.sweeps.status.point_states import SweepStates
from slurmopt.sweeps.status.query import sweep_states_or_none
from slurmopt.sweeps.status.view import over, state_counts
from slurmopt.units import human_seconds


@dataclass
class Row:
    """A run or a sweep."""

    folder: RunFolder
    owner: str | None
    state: str = "unknown"
    created: float | None = None
    jobs: list[str] = field(default_factory=list)
    """Oldest first."""
    progress: Progress = field(default_factory=Progress)
    done: str = ""
    """The progress for people: `120/500`."""
    why: str = ""
    """What there is to say of the state, the error first."""
    detail: str | None = None
    """As in `slurmopt status --json`."""
    of_kind: dict[str, Any] = field(default_factory=dict)
    """What only the JSON of a run has, or only that of a sweep."""

    @cached_property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def id(self) -> str:
        return self.folder.id

    @property
    def job(self) -> str | None:
        """The latest job."""
        return self.jobs[-1] if self.jobs else None

    @property
    def order(self) -> tuple[float, str]:
        """The sort key: the time of the launch, then the ID."""
        return self.created or 0.0, self.id

    def as_dict(self) -> dict[str, Any]:
        """What `--json` prints of it."""
        metrics = {key: value if math.isfinite(value) else None for key, value in self.progress.metrics.items()}
        return {
            "name": self.name,
            "id": self.id,
            "folder": str(self.folder.path),
            "owner": self.owner,
            "state": self.state,
            "created": self.created,
            "detail": self.detail,
            "job": self.job,
            "jobs": self.jobs,
            "step": self.progress.step,
            "total_steps": self.progress.total_steps,
            "metrics": metrics,
            **self.of_kind,
        }


def rows(folders: list[RunFolder]) -> tuple[list[Row], str | None]:
    """A row for each run and sweep, newest first, and why Slurm could not be asked, if so. A sweep that cannot be read
    is `unknown`."""
    sweeps = {run.path: SweepFolder(run.path) for run in folders if is_sweep(run.path)}
    statuses, problem = gather([run for run in folders if run.path not in sweeps], details=True)
    problems, made = [problem], [_of_run(status) for status in statuses]
    for sweep in sweeps.values():
        states = sweep_states_or_none(sweep)
        problems.append(states.problem if states else None)
        made.append(_of_sweep(states) if states else _unreadable(sweep))
    made.sort(key=lambda row: row.order, reverse=True)
    return made, next(filter(None, problems), None)


def _of_run(status: Status) -> Row:
    journal, progress = status.journal, status.progress
    left = f"{human_seconds(progress.eta_seconds)} left" if status.alive and progress.eta_seconds is not None else ""
    return Row(
        folder=status.folder,
        owner=status.owner,
        state=status.state,
        created=journal.created,
        jobs=journal.jobs,
        progress=progress,
        done=steps(progress),
        why="; ".join(filter(None, (headline(status), left))),
        detail=status.detail,
        of_kind={"ended": number((journal.ended or {}).get("time")), "elapsed": status.elapsed},
    )


def _of_sweep(states: SweepStates) -> Row:
    counts = states.counts()
    return Row(
        folder=states.sweep.run,
        owner=owner_of(states.sweep.run),
        state=states.state,
        created=states.created,
        jobs=[entry.job for entry in states.submissions if entry.job],
        done=f"{over(counts)}/{states.count}",
        why=f"{states.count:,} points: {state_counts(counts)}",
        of_kind={"points": states.count, "states": counts},
    )


def _unreadable(sweep: SweepFolder) -> Row:
    return Row(sweep.run, owner_of(sweep.run), of_kind={"points": None, "states": {}})


def folder_of(row: Row) -> Path:
    """The folder of runs in which the row's run is: `launch.folder`."""
    return row.folder.path.parent.parent
