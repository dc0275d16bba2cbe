"""`slurmopt status` and `slurmopt results` of ten thousand points that have ended, and of a million."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.measure import Case, median, side_by_side
from benchmarks.report import Report
from benchmarks.workbench import ROOT, Workbench
from slurmopt.grid import points_file, submissions
from slurmopt.grid.axes import Axis, Column
from slurmopt.grid.base_configs import Base
from slurmopt.grid.point_folder import make_point
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.points import Points
from slurmopt.grid.submissions import Submission
from slurmopt.grid.yaml_dump import dump
from slurmopt.job.pack.journal import TaskJournal
from slurmopt.job.point_end import End
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import replace_text
from slurmopt.run_folder.sweep_layout import SweepFolder

COUNT = 10_000
PER_TASK = 25
LIMITS = {"status": 1.0, "results": 2.0}
MANY, MANY_PER_TASK = 1_000_000, 1_000
MANY_WAYS = ("status", "status --json", "results", "results --json")
MANY_SECONDS, MANY_MIB = 5.0, 300.0
MANY_RUNS = 3
CONFIG = {"task": {"_target_": "points.main"}, "resources": {"time": "10m"}, "sweep": {"metric": "loss"}}
RATES = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2]
FAILED_EVERY = 100


def bench(bench: Workbench, report: Report, runs: int) -> None:
    cwd = bench.place("sweeps-looking")
    ways = {"unpacked": 1, "packed": PER_TASK}
    cases = []
    for way, per_task in ways.items():
        sweep = make_sweep(cwd / "runs" / way / "20261121-120000-aaaa", COUNT, per_task)
        for word in LIMITS:
            argv = [bench.python, "-m", "slurmopt", word, str(sweep.path)]
            cases.append(Case(f"{word}, {COUNT:,} points, {way}", argv, cwd, bench.env))
    samples = side_by_side(cases, runs)
    report.table("looking at sweeps", samples)
    for case in cases:
        report.target(case.name, median(samples[case.name]), LIMITS[case.name.partition(",")[0]], "s")
    _many(bench, report, min(runs, MANY_RUNS))


def _many(bench: Workbench, report: Report, runs: int) -> None:
    """Seconds depend on the machine, and are shown only."""
    cwd = bench.place("sweeps-many")
    sweep = make_sweep(cwd / "runs" / "many" / "20261121-120000-aaaa", MANY, MANY_PER_TASK, own_files=False)
    cases = []
    for way in MANY_WAYS:
        word, *options = way.split()
        argv = [bench.python, "-m", "slurmopt", word, str(sweep.path), *options]
        cases.append(Case(f"{way}, {MANY:,} points", argv, cwd, bench.env))
    samples = side_by_side(cases, runs)
    report.table(f"looking at a sweep of {MANY:,} points, {MANY_PER_TASK:,} in a task", samples)
    for name, found in samples.items():
        report.target(name, median(found), MANY_SECONDS, "s", binding=False)
        report.target(f"memory, {name}", max(one.peak_mib or 0.0 for one in found), MANY_MIB, "MiB")


def make_sweep(path: Path, count: int, per_task: int, own_files: bool = True) -> SweepFolder:
    """A sweep of `count` points that have ended, one in a hundred by an error of the user's, as jobs leave it.

    Without `own_files` packed points have no folders: nobody opens them who looks at the whole sweep.
    """
    sweep = SweepFolder(path)
    for folder in (sweep.points, sweep.logs):
        folder.mkdir(parents=True)
    points = _points(count)
    points_file.save(points, sweep.points_file)
    replace_text(sweep.config, dump(points.config(0, sweep.path)))
    events.append(sweep.events, "created", name=sweep.name, id=sweep.id, points=count, cwd=str(ROOT))
    packed = per_task > 1
    made = Submission(
        number=0, points=Ranges([(0, count - 1)]), per_task=per_task, packed=packed, job="900000000", token="slurmopt:0"
    )
    told = {"number": 0, "points": str(made.points), "per_task": per_task, "packed": packed, "tasks": None}
    events.append(sweep.events, "submitting", backend="sbatch", token=made.token, **told)
    events.append(sweep.events, "submitted", backend="sbatch", token=made.token, job=made.job)
    submissions.write(sweep.sweep_file, count, [made])
    for task in range(made.size):
        _end_task(sweep, points, made, task, own_files)
    return sweep


def _points(count: int) -> Points:
    axes: list[dict[str, Sequence[Any]]] = [{"lr": RATES}, {"seed": range(-(-count // len(RATES)))}]
    columns = [Axis((Column(key=key, values=values),)) for axis in axes for key, values in axis.items()]
    base = Base(picks=[], config={"lr": 0.1, "seed": 0, **CONFIG}, choices={})
    return Points(axes=columns, bases=[base], hydra=[{"job": {}, "run": {}, "runtime": {}}], kind="grid", trials=None)


def _end_task(sweep: SweepFolder, points: Points, made: Submission, task: int, own_files: bool) -> None:
    job, config = f"{made.job}_{task}", sweep.config.read_text()
    journal = _task_journal(sweep, made, task, job) if made.packed else None
    for point in made.points_of(task):
        end = _end(point)
        if own_files:
            _end_point(sweep, points, made, job, config, end)
        if journal is not None:
            journal.start(point, 0)
            journal.end(end)
    if made.packed:
        events.append(sweep.task(0, task).events, "end", attempt=0, outcome="finished", cause="finished", next=None)


def _end_point(sweep: SweepFolder, points: Points, made: Submission, job: str, config: str, end: End) -> None:
    sweep.point(end.point).path.mkdir()
    replace_text(sweep.point(end.point).config, config)  # any will do: nobody who looks reads it
    run = make_point(sweep, points, end.point, job, made.token)
    run.heartbeats.rmdir()
    run.attempt_logs(0).mkdir()
    run.rank_log(0, 0).touch()
    events.append(run.events, "attempt", attempt=0, job=job, nodes="node1", log_from=0)
    said = {name: value for name, value in vars(end).items() if name not in ("point", "attempt")}
    events.append(run.events, "end", attempt=0, exit_code=0, rank=None, **said)


def _task_journal(sweep: SweepFolder, made: Submission, task: int, job: str) -> TaskJournal:
    folder = sweep.task(made.number, task)
    os.makedirs(folder.attempt_logs(0))
    events.append(folder.events, "attempt", attempt=0, job=job, nodes="node1", log_from=0)
    return TaskJournal(folder)


def _end(point: int) -> End:
    seconds = 10 + point % 7
    end = End(point=point, attempt=0, outcome="finished", cause="finished", next=None, seconds=seconds, step=100)
    if point % FAILED_EVERY == FAILED_EVERY - 1:
        error = f"ValueError: no luck with {point}"
        return replace(end, outcome="user_error", cause="user error", error=error)
    metrics = {"loss": 1 / (point % 1000 + 1), "time": time.time()}
    return replace(end, metrics=metrics, result=metrics)
