"""A folder of runs and sweeps as launch and jobs leave them: one really ran here, of others the ends are told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.runs import make_runs
from benchmarks.sweeps.looking import make_sweep

from chaos_runs.looks.looker import environment
from slurmopt.job.pack.archive import archive
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder

POINTS = 6
ID = "20261121-120000-aaaa"
_COMMAND = "import sys; print('a line'); sys.exit('no luck')"
_RANK_LOG = "step 1\nTraceback (most recent call last)\n  File 'train.py', line 1\nValueError: no luck\n"


def make(folder: Path) -> None:
    """In `folder/runs` the runs `real`, `experiment-0` and `experiment-1`, and the sweeps `grid` and `packed`."""
    folder.mkdir(parents=True)
    _launch(folder)
    runs = folder / "runs"
    make_runs(runs, 2)
    for path in sorted(runs.glob("experiment-*/*")):
        _saved(RunFolder(path))
    grid = make_sweep(runs / "grid" / ID, POINTS, 1)
    packed = make_sweep(runs / "packed" / ID, POINTS, POINTS, own_files=False)
    _archived(packed)
    for sweep in (grid, packed):
        sweep.run.script.write_text("#!/bin/bash\n#SBATCH --array=0-5\n")
        sweep.run.overrides.write_text("- lr=0.1,0.2\n")
    grid.cancelled.write_text("4\n")


def _launch(folder: Path) -> None:
    """A run of the local backend that fails, with all its files."""
    words = [
        "launch.backend=local",
        "launch.name=real",
        "launch.wait=true",
        f'task.command=["{sys.executable}",-c,"{_COMMAND}"]',
    ]
    command = [sys.executable, "-m", "slurmopt.launch", *words, "resources.time=10m"]
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 1 or not list(folder.glob("runs/real/*/result.json")):
        raise RuntimeError(f"the run to look at was not made: {done.stderr[-2000:]}")


def _saved(run: RunFolder) -> None:
    """Two attempts with checkpoints."""
    run.config.write_text("task: {command: ['true']}\nresources: {time: '00:10:00', nodes: 2}\n")
    run.script.write_text("#!/bin/bash\n#SBATCH --time=00:10:00\n")
    run.overrides.write_text("- a=1\n")
    run.result.write_text(json.dumps({"attempt": 0, "outcome": "user_error", "rank": 0, "error": "no luck"}) + "\n")
    run.attempt_logs(0).mkdir(parents=True)
    run.rank_log(0, 0).write_text(_RANK_LOG)
    run.job_log("900000000").write_text("srun: error: node1: task 0: Exited with exit code 1\n")
    name = "step-00000005/a0000-00000001"
    events.append(run.events, "checkpoint", attempt=0, step=5, tier="shared", checkpoint=name, bytes=8, seconds=0.5)
    events.append(run.events, "checkpoint-failed", attempt=0, step=6, tier="s3", checkpoint=name, reason="no space")
    events.append(run.events, "restored", attempt=0, step=5, tier="shared", checkpoint=name)
    record = {"kind": "commit", "owner": "a", "step": 5, "unique": "a0000-00000001", "xxh3": "0" * 32}
    place = run.checkpoints / "commits" / "0000-000000.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(record))


def _archived(sweep: SweepFolder) -> None:
    """Some points have records of their own, and some are in the files of their array task."""
    task = sweep.task(0, 0)
    for folder in (sweep.path, task.path):
        folder.chmod(0o700)
    runs = [sweep.packed_point(number, "0-0") for number in range(POINTS)]
    for number, run in enumerate(runs):
        run.attempt_logs(0).mkdir(parents=True)
        run.heartbeats.mkdir()
        run.config.write_text(f"task: {{_target_: points.main}}\nseed: {number}\n")
        events.append(run.events, "created", name="packed", id=f"{ID}/{number}", cwd="/", values={"seed": number})
        events.append(run.events, "attempt", attempt=0, job="900000000_0", task="0-0", task_attempt=0)
        run.rank_log(0, 0).write_text(_RANK_LOG)
        events.append(
            run.events, "end", attempt=0, outcome="user_error", cause="user error", next=None, error="no luck"
        )
    for folder in (task.path / "points", *(run.kept for run in runs)):
        os.chmod(folder, 0o700)
    archive(task, runs[: POINTS // 2])
