"""Sweeps, on a private Slurm of four nodes whose arrays have at most 1,001 tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.report import Report
from benchmarks.sweeps import launching, looking, running, search
from benchmarks.workbench import ROOT, Workbench, private_cluster

NODES = 4
MAX_ARRAY_SIZE = 1001


def bench(bench: Workbench, report: Report, runs: int, sweeper: str | None = None) -> None:
    """`sweeper`: a Python that has hydra-optuna-sweeper and hydra-submitit-launcher; it wants an older Optuna."""
    looking.bench(bench, report, runs)
    if not bench.slurm:
        report.skip("sweeps that are launched: no cluster")
        return
    with cluster(bench) as alone:
        launching.bench(alone, report, runs, NODES)
        running.bench(alone, report, runs)
        search.bench(alone, report, sweeper)


@contextmanager
def cluster(bench: Workbench) -> Iterator[Workbench]:
    """A private cluster for sweeps. An array that is cancelled counts with all its tasks for MinJobAge longer: with the
    default MaxJobCount, 10,000, sbatch makes the tenth launch wait for two minutes."""
    options = ("--gpus", "0", "--max-array-size", str(MAX_ARRAY_SIZE))
    folder = bench.folder / "sweeps-slurm"
    with private_cluster(folder, NODES, *options) as words:
        with Path(words["SLURM_CONF"]).open("a") as conf:
            conf.write("MaxJobCount=1000000\n")
        bench.run(
            [sys.executable, str(ROOT / "scripts" / "slurm-cluster"), "restart-controller", "--folder", str(folder)]
        )
        yield replace(bench, slurm=True, env={**bench.env, **words, "XDG_CACHE_HOME": str(bench.place("sweeps-cache"))})
