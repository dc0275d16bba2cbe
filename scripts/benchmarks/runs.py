"""Many run folders, as launch and job would leave them."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.workbench import ROOT

sys.path.insert(0, str(ROOT))

from slurmopt.run_folder import events
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder

ALIVE_EVERY = 25
"""Every 25th run is under way, the others have ended."""


def make_runs(base: Path, count: int) -> None:
    """Makes `count` runs of 20 experiments in `base`; of those under way squeue will not know."""
    for number in range(count):
        _make(RunFolder(base / f"experiment-{number % 20}" / f"20250101-{number:06}-aaaa"), number)


def _make(run: RunFolder, number: int) -> None:
    run.make()
    job = str(900_000_000 + number)
    events.append(run.events, "created", name=run.name, id=run.id, backend="sbatch")
    events.append(run.events, "submitting", token=f"slurmopt:{number}", backend="sbatch")
    events.append(run.events, "submitted", token=f"slurmopt:{number}", backend="sbatch", job=job)
    events.append(run.events, "attempt", attempt=0, job=job, nodes="node[1-2]")
    ended = {} if number % ALIVE_EVERY == 0 else {"outcome": "finished", "time": 1.0, "exit_code": 0}
    for rank in range(2):
        path = run.heartbeat(0, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        Heartbeat(rank=rank, world_size=2, node="node1", pid=1, step=10, outcome=ended or None).write(path)
    if ended:
        events.append(run.events, "end", attempt=0, outcome="finished", exit_code=0, rank=None, error=None)
