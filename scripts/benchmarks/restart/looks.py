"""`slurmopt tend` over many runs that have ended, and `slurmopt history` of one that was interrupted often."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.measure import Case, median, side_by_side
from benchmarks.report import Report
from benchmarks.workbench import Calls, Workbench
from slurmopt.run_folder import events
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder

ENDED, ATTEMPTS, CHECKPOINTS = 500, 200, 20
"""Runs; attempts of the long one, and checkpoints of each of these."""
LIMIT = 1.0


def bench(bench: Workbench, report: Report, runs: int) -> None:
    place = bench.place("restart-looks")
    for number in range(ENDED):
        _make(RunFolder(place / "runs" / f"experiment-{number % 20}" / f"20250101-{number:06}-aaaa"), number, 1)
    long = RunFolder(place / "long" / "run" / "20250101-000000-bbbb")
    _make(long, ENDED, ATTEMPTS)
    calls = Calls(bench, "tend")

    def case(name: str, *words: str) -> Case:
        return Case(name, [bench.python, "-m", "slurmopt", *words], place, calls.env)

    tend, history = f"tend, {ENDED} ended runs", f"history --json, {ATTEMPTS} attempts"
    samples = side_by_side(
        [
            Case("python -c pass", [bench.python, "-c", "pass"], place, bench.env),
            case(tend, "tend"),
            case(history, "history", str(long.path), "--json"),
        ],
        runs,
    )
    lines = len(long.events.read_text().splitlines())
    report.table("looking at restarts", samples, {history: f"{lines} lines of its journal"})
    for name in (tend, history):
        report.target(name, median(samples[name]), LIMIT, "s")
    report.target(f"Slurm's commands called by {runs + 1} tend", calls.of("squeue") + calls.of("sacct"), 0, "calls")


def _make(run: RunFolder, number: int, attempts: int) -> None:
    """A run as its job leaves it: each attempt but the last was requeued at its time limit."""
    run.make()
    Path(run.config).write_text("resources: {nodes: 1}\n")
    job, began = str(800_000_000 + number), time.time() - 3600.0 * attempts
    events.append(run.events, "created", name=run.name, id=run.id, backend="sbatch")
    events.append(run.events, "submitting", token=f"slurmopt:{number}", backend="sbatch")
    events.append(run.events, "submitted", token=f"slurmopt:{number}", backend="sbatch", job=job)
    for attempt in range(attempts):
        _add(run, job, attempt, began + 3600.0 * attempt, is_last=attempt == attempts - 1)


def _add(run: RunFolder, job: str, attempt: int, began: float, is_last: bool) -> None:
    step = CHECKPOINTS * (attempt + 1)
    events.append(run.events, "attempt", attempt=attempt, job=job, nodes="node[1-2]")
    for saved in range(step - CHECKPOINTS + 1, step + 1):
        said = {"tier": "shared", "checkpoint": f"step-{saved}/a", "bytes": 1 << 30, "seconds": 2.0}
        events.append(run.events, "checkpoint", attempt=attempt, step=saved, **said)
    end = {"outcome": "finished", "cause": "finished", "next": None, "exit_code": 0}
    if not is_last:
        events.append(run.events, "signal", attempt=attempt, signal="USR1")
        events.append(run.events, "requeue", attempt=attempt, job=job)
        end = {"outcome": "requeue", "cause": "time limit", "next": "requeue", "exit_code": 75}
    events.append(run.events, "end", attempt=attempt, **end, step=step, durable=step)
    for rank in range(2):
        path = run.heartbeat(attempt, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        beat = Heartbeat(rank=rank, world_size=2, node="node1", pid=1, step=step, outcome=end, started=began + 1)
        beat.phases, beat.first_step, beat.first_step_time = {"running": began + 5}, step - CHECKPOINTS + 1, began + 9
        beat.write(path)
