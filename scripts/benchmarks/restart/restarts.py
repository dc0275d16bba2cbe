"""What it costs to be restartable, and how long a restart takes."""

from __future__ import annotations

from importlib.util import find_spec

from benchmarks.report import Report
from benchmarks.restart import looks, slurm, steps
from benchmarks.workbench import Workbench


def bench(bench: Workbench, report: Report, runs: int) -> None:
    """What looks at runs, what a step pays, and how long restarts take; the last on the private Slurm."""
    looks.bench(bench, report, runs)
    if find_spec("torch") is None:
        report.skip("the cost of a step, and restarts: torch is not installed here")
        return
    steps.bench(bench, report, runs)
    if bench.slurm:
        slurm.bench(bench, report, runs)
    else:
        report.skip("restarts, and Slurm's RPCs: no cluster")
