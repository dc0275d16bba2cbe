"""Two hundred short points from the command to the last result, and how soon a packed point follows the one before."""

from __future__ import annotations

import itertools
import shutil
import statistics
import time
from importlib.util import find_spec
from pathlib import Path

from benchmarks.measure import Case, Sample, Samples, median, side_by_side
from benchmarks.report import Report
from benchmarks.sweeps.project import SUBMITIT, await_end, ends, launched, patient, project
from benchmarks.workbench import Workbench

COUNT = 200
PACKED, UNPACKED, HYDRA = "slurmopt, packed", "slurmopt, each point a task", "hydra-submitit"
PER_TASK = 25
LIMITS = {PACKED: 1 / 8, UNPACKED: 1 / 2}
WORDS = {PACKED: [f"sweep.per_task={PER_TASK}"], UNPACKED: []}
POINTS = ("model=small,large", f"seed=range({COUNT // 2})")
IN_A_ROW = 40
AT_MOST_MS = 50.0


def bench(bench: Workbench, report: Report, runs: int) -> None:
    _to_the_last_result(bench, report, max(1, runs // 3))
    if find_spec("torch"):
        _one_after_the_other(bench, report, max(1, runs // 3))
    else:
        report.skip("the start of packed points: torch is not installed here")


def _to_the_last_result(bench: Workbench, report: Report, rounds: int) -> None:
    cwd = project(bench, "sweeps-running")
    samples: Samples = {name: [] for name in LIMITS}
    notes = {PACKED: f"{PER_TASK} points in each array task"}
    for number in range(rounds):
        for name in LIMITS:
            samples[name].append(Sample(to_the_last_result(bench, cwd, WORDS[name])))
        if number == rounds // 2 and find_spec("hydra_plugins.hydra_submitit_launcher"):
            whole, last = _theirs(bench, cwd)
            samples[HYDRA] = [Sample(whole)]
            notes[HYDRA] = f"once, to its return; its last result was there after {last:.1f} s"
    report.table(f"{COUNT} points, from the command to the last result", samples, notes)
    if HYDRA not in samples:
        report.skip("hydra-submitit-launcher: not installed in this Python")
        return
    for name, limit in LIMITS.items():
        report.target(
            f"{COUNT} points, {name} / {HYDRA}", median(samples[name]) / samples[HYDRA][0].seconds, limit, "x"
        )


def to_the_last_result(bench: Workbench, cwd: Path, words: list[str]) -> float:
    """Seconds of the points, from the launch's start to the last end in a journal."""
    since = time.time()
    sweep = launched(bench, cwd, *POINTS, *words)
    await_end(bench)
    return max(float(end["time"]) for end in ends(sweep, COUNT)) - since


def _theirs(bench: Workbench, cwd: Path) -> tuple[float, float]:
    """Seconds to the return of hydra-submitit, and to its last result."""
    for folder in ("submitit", "sweep"):
        shutil.rmtree(cwd / folder, ignore_errors=True)
    since = time.time()
    whole = patient([bench.python, "with_hydra.py", *SUBMITIT, *POINTS], cwd, bench.env)
    await_end(bench)
    results = [path.stat().st_mtime for path in (cwd / "submitit").glob("*_result.pkl")]
    return whole, max(results) - since


def _one_after_the_other(bench: Workbench, report: Report, rounds: int) -> None:
    """From the last line of a point's user code to the first line of the next one's; torch is there."""
    cwd = project(bench, "sweeps-packed")
    plain: list[float] = []
    of_hydra: list[float] = []
    for _ in range(rounds):
        plain += gaps(bench, cwd)
        of_hydra += gaps_of_hydra(bench, cwd)
    torch = Case("python -c 'import torch'", [bench.python, "-c", "import torch"], cwd, bench.env)
    samples = {
        "the next point's user code": [Sample(gap) for gap in plain],
        "of a Hydra application": [Sample(gap) for gap in of_hydra],
        **side_by_side([torch], rounds),
    }
    report.table(f"{IN_A_ROW} packed points in a row", samples)
    report.target("start of a packed point", statistics.median(plain) * 1000, AT_MOST_MS, "ms")
    report.target(
        "start of a packed point of a Hydra application", statistics.median(of_hydra) * 1000, AT_MOST_MS, "ms"
    )


def gaps(bench: Workbench, cwd: Path) -> list[float]:
    """Seconds between the points of a packed sweep."""
    (cwd / "moments").unlink(missing_ok=True)
    words = ["task._target_=with_torch.main", f"seed=range({IN_A_ROW})", f"sweep.per_task={IN_A_ROW}"]
    sweep = launched(bench, cwd, *words)
    await_end(bench)
    ends(sweep, IN_A_ROW)
    return between((cwd / "moments").read_text())


def gaps_of_hydra(bench: Workbench, cwd: Path) -> list[float]:
    """`gaps` of a Hydra application under slurmopt's launcher."""
    (cwd / "moments").unlink(missing_ok=True)
    words = ["hydra/launcher=slurmopt", f"hydra.launcher.per_task={IN_A_ROW}", "hydra.launcher.resources.time=5m"]
    patient([bench.python, "moments_with_hydra.py", "-m", *words, f"seed=range({IN_A_ROW})"], cwd, bench.env)
    return between((cwd / "moments").read_text())


def between(moments: str) -> list[float]:
    """Seconds from each end to the next begin, of lines `begin end` in their order."""
    times = [[float(word) for word in line.split()] for line in moments.splitlines()]
    return [later[0] - earlier[1] for earlier, later in itertools.pairwise(times)]
