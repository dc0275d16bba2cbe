"""Sweep folders made by hand, as launch and jobs would leave them."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmopt.grid import points_file, submissions
from slurmopt.grid.axes import Axis, Column
from slurmopt.grid.base_configs import Base
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.points import Points
from slurmopt.grid.submissions import Submission
from slurmopt.grid.yaml_dump import dump
from slurmopt.run_folder.access.files import replace_text
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder

CONFIG = {"task": {"command": ["true"]}, "resources": {"memory": "1G", "time": "00:10:00"}}


class MadeSweep:
    """One sweep under the test's `runs/`."""

    def __init__(
        self, base: Path, name: str, sweep_id: str, sweep: dict[str, Any], search: int | None = None, **axes: list[Any]
    ) -> None:
        self.folder = SweepFolder(base / name / sweep_id)
        for folder in (self.folder.points, self.folder.logs):
            folder.mkdir(parents=True)
        columns = [Axis((Column(key=key, values=values),)) for key, values in axes.items()]
        config = {**{key: values[0] for key, values in axes.items()}, **CONFIG, "sweep": sweep}
        base_config = Base(picks=[], config=config, choices={})
        hydra: list[dict[str, Any]] = [{"job": {}, "run": {}, "runtime": {}}]
        kind = "grid" if search is None else "search"
        self.points = Points(axes=columns, bases=[base_config], hydra=hydra, kind=kind, trials=search)
        points_file.save(self.points, self.folder.points_file)
        replace_text(self.folder.config, dump(self.points.config(0, self.folder.path)))
        replace_text(self.folder.run.overrides, "[]\n")
        replace_text(self.folder.script, "#!/bin/bash\n")
        _append(self.folder.events, "created", name=name, id=sweep_id, points=len(self.points), cwd=str(base.parent))
        self.submissions: list[Submission] = []

    @property
    def label(self) -> str:
        return f"{self.folder.name}/{self.folder.id}"

    def submitted(self, points: str, job: str | None, per_task: int = 1, tasks: int | None = None) -> MadeSweep:
        """One more array job; packed where its tasks have several points, or share them (`tasks`)."""
        number, token = len(self.submissions), f"slurmopt:{job}"
        packed = per_task > 1 or tasks is not None
        self.submissions.append(
            Submission(
                number=number,
                points=Ranges.parse(points),
                per_task=per_task,
                packed=packed,
                job=job,
                token=token,
                tasks=tasks,
            )
        )
        told = {"number": number, "points": points, "per_task": per_task, "packed": packed, "tasks": tasks}
        _append(self.folder.events, "submitting", backend="sbatch", token=token, **told)
        if job is not None:
            _append(self.folder.events, "submitted", backend="sbatch", token=token, job=job)
        submissions.write(self.folder.sweep_file, len(self.points), self.submissions)
        return self

    def started(self, point: int, attempt: int = 0, log: str = "") -> RunFolder:
        """Point as an array task of its own, which has started."""
        job, token = self._job(point)
        run = self.folder.point(point)
        run.attempt_logs(attempt).mkdir(parents=True)
        run.heartbeats.mkdir(exist_ok=True)
        if not run.events.exists():
            replace_text(run.config, dump(self.points.config(point, run.path)))
            _append(run.events, "created", name=run.name, id=run.id)
        _append(run.events, "submitted", token=token, backend="sbatch", job=job)
        _append(run.events, "attempt", attempt=attempt, job=job, nodes="node1")
        run.rank_log(attempt, 0).write_text(log)
        return run

    def ended(self, point: int, outcome: str = "finished", attempt: int = 0, log: str = "", **fields: Any) -> RunFolder:
        """The same, which has ended too."""
        run = self.started(point, attempt, log)
        _append(run.events, "end", **_end(outcome, attempt, fields))
        return run

    def task(self, submission: int, task: int, *lines: tuple[int, str], end: str | None = None) -> RunFolder:
        """An array task that starts its points itself: ("started" or an outcome) of each point, in that order."""
        run = self.folder.task(submission, task)
        job = f"{self.submissions[submission].job}_{task}"
        if not run.path.exists():
            run.path.mkdir(parents=True)
            _append(run.events, "attempt", attempt=0, job=job, nodes="node1")
        for point, word in lines:
            if word == "started":
                _append(run.events, "point", point=point, state="started", attempt=0)
            else:
                _append(run.events, "point", point=point, state="ended", **_end(word, 0, {}))
        if end is not None:
            _append(run.events, "end", **_end(end, 0, {}))
        return run

    def packed_end(self, run: RunFolder, point: int, outcome: str = "finished", **fields: Any) -> None:
        """A line of the parent's journal."""
        _append(run.events, "point", point=point, state="started", attempt=0)
        _append(run.events, "point", point=point, state="ended", **_end(outcome, 0, fields))

    def _job(self, point: int) -> tuple[str, str | None]:
        for one in reversed(self.submissions):
            if one.job is not None and (task := one.task_of(point)) is not None:
                return f"{one.job}_{task}", one.token
        raise AssertionError(f"no array job has point {point}")


_CLOCK = itertools.count()


def _append(path: Path, event: str, **fields: Any) -> None:
    """As `slurmopt.run_folder.events.append` does, a minute ago: what squeue answers is newer."""
    when = round(time.time() - 60 + next(_CLOCK) / 1000, 3)
    with path.open("a") as file:
        file.write(json.dumps({"time": when, "event": event, **fields}) + "\n")


def _end(outcome: str, attempt: int, fields: dict[str, Any]) -> dict[str, Any]:
    again = {"cause": "node failure", "next": "requeue"} if outcome == "requeue" else {"cause": outcome, "next": None}
    return {"attempt": attempt, "outcome": outcome, "exit_code": 0, "rank": None, **again, **fields}


@pytest.fixture
def make_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., MadeSweep]:
    """Makes sweeps in `runs/` of the folder that the test stands in, where no Slurm is to be found."""
    monkeypatch.chdir(tmp_path)
    tools = tmp_path / ".tools"
    tools.mkdir()
    for tool in ("bash", "env", "sleep"):
        found = next(Path(one) / tool for one in os.environ["PATH"].split(":") if (Path(one) / tool).exists())
        (tools / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(tools))

    def make(name: str = "mine", sweep_id: str = "20261121-120000-aaaa", sweep: Any = None, **axes: Any) -> MadeSweep:
        axes = axes or {"lr": [0.1, 0.2], "seed": [0, 1, 2]}
        return MadeSweep(tmp_path / "runs", name, sweep_id, sweep or {}, **axes)

    return make


@pytest.fixture
def in_queue(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What squeue answered a moment ago, in the shape in which commands share it: job id, state, reason."""

    def fill(sweep: MadeSweep, *jobs: tuple[str, str, str]) -> None:
        from slurmopt.slurm.cluster import cache

        token = {one.job: one.token for one in sweep.submissions}
        rows = [
            [job, state, reason, "node1", None, 0, None, 0, "", token.get(job.partition("_")[0], ""),
             f"{sweep.folder.script} 0 0-5 1", None, True]
            for job, state, reason in jobs
        ]  # fmt: skip
        cache.write("queue", json.loads(json.dumps({"jobs": rows})), time.time())

    return fill
