"""status, list and --help beside bare Python; status of many runs; how often Slurm is asked."""

from __future__ import annotations

import math
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.commands.imports import check_imports
from benchmarks.measure import Case, median, more, side_by_side
from benchmarks.report import Report
from benchmarks.runs import ALIVE_EVERY, make_runs
from benchmarks.workbench import Calls, Workbench, console_script, refresher

MORE_THAN_PYTHON = 100.0
FEW = ALIVE_EVERY + 1
"""The latest of so many is under way."""
MANY, MANY_LIMIT = 1000, 1.0
WORDS = (("status",), ("list",), ("--help",))
QUEUE_SERVES, QUEUE_REFRESH = 15.0, 10.0
WATCH_SECONDS, WATCHERS = 20.0, 5
NEVER = ("hydra", "omegaconf", "torch", "boto3", "pynvml")


def bench(bench: Workbench, report: Report, runs: int) -> None:
    few, many = bench.place("few"), bench.place("many")
    make_runs(few / "runs", FEW)
    make_runs(many / "runs", MANY)
    _quick_commands(bench, report, few, runs * 2)
    _many_runs(bench, report, many, runs)
    for words in WORDS:
        check_imports(bench, report, few, "slurmopt.cli", words, NEVER)
    if bench.slurm:
        _squeue_calls(bench, report, many)
    else:
        report.skip("how often squeue is called: no cluster")


def _quick_commands(bench: Workbench, report: Report, cwd: Path, runs: int) -> None:
    warm = refresher(lambda: bench.run([bench.python, "-m", "slurmopt", "status"], cwd), QUEUE_REFRESH)
    base = Case("python -c pass", [bench.python, "-c", "pass"], cwd, bench.env)
    ways = {"python -m slurmopt": [bench.python, "-m", "slurmopt"]}
    if script := console_script():
        ways["slurmopt"] = [script]
    else:
        report.skip("the console script: slurmopt is not installed in this Python")
    cases = [
        Case(f"{name} {' '.join(words)}", [*way, *words], cwd, bench.env, warm)
        for name, way in ways.items()
        for words in WORDS
    ]
    samples = side_by_side([base, *cases], runs)
    report.table("looking", samples)
    for case in cases:
        extra = more(samples[case.name], samples[base.name]) * 1000
        report.target(f"{case.name} more than {base.name}", extra, MORE_THAN_PYTHON, "ms")


def _many_runs(bench: Workbench, report: Report, cwd: Path, runs: int) -> None:
    argv = [bench.python, "-m", "slurmopt", "status", "--all"]
    warm = refresher(lambda: bench.run(argv, cwd), QUEUE_REFRESH)

    def forget() -> None:
        bench.place("empty-cache")

    alone = {**bench.env, "XDG_CACHE_HOME": str(bench.folder / "empty-cache")}
    shared = Case(f"status --all, {MANY} runs, squeue shared", argv, cwd, bench.env, warm)
    asked = Case(f"status --all, {MANY} runs, squeue asked", argv, cwd, alone, forget)
    samples = side_by_side([shared, asked], runs)
    report.table("looking at many", samples)
    for case in (shared, asked):
        report.target(case.name, median(samples[case.name]), MANY_LIMIT, "s")


def _squeue_calls(bench: Workbench, report: Report, cwd: Path) -> None:
    """All watch at once, from an empty cache; at most one call may fall into each started 15 seconds."""
    calls = Calls(bench, "watching")
    env = {**calls.env, "XDG_CACHE_HOME": str(bench.place("watching-cache"))}
    looks, seconds = _watch(bench, cwd, env)
    allowed = math.ceil(seconds / QUEUE_SERVES)
    what = f"squeue calls of {WATCHERS} loops, {looks} looks in {seconds:.0f} s"
    report.target(what, calls.of("squeue"), allowed, "calls")


def _watch(bench: Workbench, cwd: Path, env: Mapping[str, str]) -> tuple[int, float]:
    """How many looks were taken, within how many seconds."""
    argv = [bench.python, "-m", "slurmopt", "status", "experiment-0/20250101-000000-aaaa", "--json"]
    started = time.monotonic()
    looks: list[int] = []

    def loop() -> None:
        while time.monotonic() - started < WATCH_SECONDS:
            looks.append(subprocess.run(argv, cwd=cwd, env=dict(env), stdout=subprocess.DEVNULL, check=True).returncode)

    threads = [threading.Thread(target=loop) for _ in range(WATCHERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(looks), time.monotonic() - started
