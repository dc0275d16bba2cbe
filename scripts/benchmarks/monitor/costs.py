"""Measures what the sampler of a node and the calls of a training cost."""

from __future__ import annotations

from benchmarks.monitor import ranks, sampler, throughput
from benchmarks.report import Report
from benchmarks.workbench import Workbench


def bench(bench: Workbench, report: Report, runs: int) -> None:
    """Prints the costs of the sampler, of reading series, of each call, and of all of it to a training."""
    sampler.bench(bench, report, runs)
    ranks.bench(bench, report, runs)
    throughput.bench(bench, report, runs)
