"""What `slurmopt tune loader` advises beside a full grid, on four workloads."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.measure import Sample
from benchmarks.report import Report
from benchmarks.workbench import ROOT, Workbench

TRIALS = Path(__file__).with_name("loader_trials.py")
WORKLOADS = ("decode", "storage", "tiny", "collate")
GRID_STEPS, TRIAL_STEPS = 200, 60
CLOSE, TIME = 1.05, 0.10


def bench(bench: Workbench, report: Report, runs: int) -> None:
    """The best rate of the grid beside the advised one, and the time of both. One run of each: the grid takes long."""
    for name in WORKLOADS:
        words = [bench.python, str(TRIALS), name, str(GRID_STEPS), str(TRIAL_STEPS)]
        found = json.loads(bench.run(words, env={**bench.env, "PYTHONPATH": str(ROOT)}))
        rates, (advice, grid) = found["grid"], found["seconds"]
        best = max(rates, key=lambda cell: rates[cell])
        report.table(
            f"{name}: {found['advised']} workers are advised; best of the grid: {best}",
            {"a batch of 8 as advised": [Sample(8 / found["rate"])], "the best of the grid": [Sample(8 / rates[best])]},
        )
        report.target(f"{name}: best rate of the grid / advised", rates[best] / found["rate"], CLOSE, "x")
        report.target(f"{name}: time of the advice / of the grid ({grid:.0f} s)", advice / grid, TIME, "x")
