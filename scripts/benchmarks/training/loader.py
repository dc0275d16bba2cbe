"""What `slurmopt tune loader` advises beside a full grid, on five workloads."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

from benchmarks.measure import Sample
from benchmarks.report import Report
from benchmarks.workbench import ROOT, Workbench

TRIALS = Path(__file__).with_name("loader_trials.py")
WORKLOADS = ("decode", "busy", "storage", "tiny", "collate")
GRID_STEPS, TRIAL_STEPS = 200, 60
CLOSE, TIME = 1.05, 0.10
_SECONDS = 400.0
"""The longest time for the grid of a workload."""


def bench(bench: Workbench, report: Report, runs: int) -> None:
    """The best of the grid beside what is advised, both once more in turns; the time of the advice and of the grid."""
    for name in WORKLOADS:
        words = [bench.python, str(TRIALS), name, str(GRID_STEPS), str(TRIAL_STEPS)]
        found = json.loads(bench.run(words, env={**bench.env, "PYTHONPATH": str(ROOT)}, seconds=_SECONDS))
        rates, (advice, grid) = found["again"], found["seconds"]
        report.table(
            f"{name}: {found['advised']} are advised; best of the grid: {found['best']}",
            {
                "a batch of 8 as advised": [Sample(8 / rate) for rate in rates["advised"]],
                "the best of the grid": [Sample(8 / rate) for rate in rates["best"]],
            },
        )
        ratio = median(rates["best"]) / median(rates["advised"])
        report.target(f"{name}: rate of the grid's best / as advised, in turns", ratio, CLOSE, "x")
        report.target(f"{name}: time of the advice / of the grid ({grid:.0f} s)", advice / grid, TIME, "x")
