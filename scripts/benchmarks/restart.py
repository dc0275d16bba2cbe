"""What it costs to be restartable, and how long a restart takes."""

from __future__ import annotations

from importlib.util import find_spec

from benchmarks import restart_looks, restart_slurm, restart_steps
from benchmarks.report import Report
from benchmarks.workbench import Workbench


def bench(bench: Workbench, report: Report, runs: int) -> None:
    """What looks at runs, what a step pays, and how long restarts take; the last on the private Slurm."""
    restart_looks.bench(bench, report, runs)
    if find_spec("torch") is None:
        report.skip("the cost of a step, and restarts: torch is not installed here")
        return
    restart_steps.bench(bench, report, runs)
    if bench.slurm:
        restart_slurm.bench(bench, report, runs)
    else:
        report.skip("restarts, and Slurm's RPCs: no cluster")
