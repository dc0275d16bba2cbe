"""Sweeps, on a private Slurm of four nodes whose arrays have at most 1,001 tasks."""

from __future__ import annotations

from dataclasses import replace

from benchmarks import sweeps_launching, sweeps_looking, sweeps_running, sweeps_search
from benchmarks.report import Report
from benchmarks.workbench import Workbench, private_cluster

NODES = 4
MAX_ARRAY_SIZE = 1001


def bench(bench: Workbench, report: Report, runs: int, sweeper: str | None = None) -> None:
    """`sweeper`: a Python that has hydra-optuna-sweeper and hydra-submitit-launcher; it wants an older Optuna."""
    sweeps_looking.bench(bench, report, runs)
    if not bench.slurm:
        report.skip("sweeps that are launched: no cluster")
        return
    options = ("--gpus", "0", "--max-array-size", str(MAX_ARRAY_SIZE))
    with private_cluster(bench.folder / "sweeps-slurm", NODES, *options) as words:
        alone = replace(bench, env={**bench.env, **words, "XDG_CACHE_HOME": str(bench.place("sweeps-cache"))})
        sweeps_launching.bench(alone, report, runs, NODES)
        sweeps_running.bench(alone, report, runs)
        sweeps_search.bench(alone, report, sweeper)
