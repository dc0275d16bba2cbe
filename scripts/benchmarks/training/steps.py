"""What `Steps` costs beside the same loop by hand."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from benchmarks.measure import Sample
from benchmarks.report import Report
from benchmarks.workbench import ROOT, Workbench

LOOPS = Path(__file__).with_name("loops.py")
ROUNDS, CALLS = 40, 10
"""Rounds for each of `--runs`, and steps in each of them."""
LIMIT = 1.01


def bench(bench: Workbench, report: Report, runs: int) -> None:
    """Seconds of a step of both, in changing order within one process, and the ratio that is promised."""
    words = [bench.python, str(LOOPS), str(runs * ROUNDS), str(CALLS)]
    found = json.loads(bench.run(words, env={**bench.env, "PYTHONPATH": str(ROOT)}))
    names = ("by Steps", "by hand")
    report.table(
        "a training step on one CPU thread",
        {name: [Sample(each[at]) for each in found] for at, name in enumerate(names)},
    )
    low, middle, high = statistics.quantiles([ours / hand for ours, hand in found], n=4)
    report.target(
        f"a step by Steps / by hand, median of {len(found)} rounds ({low:.3f} to {high:.3f})", middle, LIMIT, "x"
    )
