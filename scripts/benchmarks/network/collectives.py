"""Whether `slurmopt bench collectives` measures what a bare loop of torch does, and its memory beside that loop's."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from benchmarks.measure import Case, Sample, Samples, median, side_by_side
from benchmarks.report import Report
from benchmarks.workbench import ROOT, Workbench

LOOP = Path(__file__).with_name("loop.py")
ROUNDS = {1 << 16: 20, 1 << 20: 10, 1 << 24: 1}
"""Bytes → rounds for each of `--runs`: a round of small calls takes milliseconds, and says little alone."""
LARGE = 1 << 26
OURS, BARE = "slurmopt", "bare torch loop"
LIMIT = 1.05
MEMORY_LIMIT = 1.1


def bench(bench: Workbench, report: Report, runs: int) -> None:
    """Seconds of a call of both, in changing order within one process group of two ranks; then whole commands."""
    _calls(bench, report, runs)
    _commands(bench, report, min(runs, 3))


def _calls(bench: Workbench, report: Report, runs: int) -> None:
    env = {**bench.env, "PYTHONPATH": str(ROOT)}
    found = {}
    for size, each in ROUNDS.items():
        told = json.loads(bench.run([bench.python, str(LOOP), "pairs", str(runs * each), str(size)], env=env))
        found[size] = told[str(size)]
    samples: Samples = {}
    for size, rounds in found.items():
        for at, name in enumerate((OURS, BARE)):
            samples[f"all_reduce of {size >> 10} KiB, {name}"] = [Sample(each[at]) for each in rounds]
    report.table("calls of all_reduce, 2 ranks, gloo", samples)
    for size, rounds in found.items():
        _compare(report, size, rounds)


def _compare(report: Report, size: int, rounds: list[list[float]]) -> None:
    """The fastest tenth of the rounds of each is what the machine can do while nobody else uses it; the median of the
    ratios needs a quiet machine, and is shown with its quartiles."""
    fastest = [sorted(each[at] for each in rounds)[len(rounds) // 10] for at in (0, 1)]
    low, middle, high = statistics.quantiles([ours / bare for ours, bare in rounds], n=4)
    what = f"busbw of the bare loop / of slurmopt, {size >> 10} KiB"
    report.target(f"{what}, the fastest tenth of {len(rounds)} rounds", fastest[0] / fastest[1], LIMIT, "x")
    report.target(f"{what}, median of the rounds ({low:.2f} to {high:.2f})", middle, LIMIT, "x", binding=False)


def _commands(bench: Workbench, report: Report, runs: int) -> None:
    place = bench.place("collectives")
    env = {**bench.env, "PYTHONPATH": str(ROOT)}
    words = ["bench", "collectives", "--collectives", "all_reduce", "--sizes", str(LARGE), "--no-pairs"]
    ours = f"slurmopt bench collectives, all_reduce of {LARGE >> 20} MiB"
    bare = f"{BARE}, all_reduce of {LARGE >> 20} MiB"
    cases = [
        Case(ours, [bench.python, "-m", "slurmopt", *words, "--seconds", "600"], place, env),
        Case(bare, [bench.python, str(LOOP), "bare", str(LARGE)], place, env),
    ]
    samples = side_by_side(cases, runs)
    report.table("commands, with importing torch", samples)
    peaks = [max(sample.peak_mib or 0.0 for sample in samples[name]) for name in (ours, bare)]
    report.target("peak memory of a rank / of the bare loop's", peaks[0] / peaks[1], MEMORY_LIMIT, "x")
    seconds = median(samples[ours]) / median(samples[bare])
    report.target("seconds of the command / of the bare loop", seconds, 2.0, "x", binding=False)
