"""The launch of many points beside that of one run, and beside hydra-submitit's way to its submission.

All nodes are taken meanwhile, and each array is cancelled right after it was submitted.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from benchmarks.commands.other_launchers import FACTS_SERVE, busy_cluster, cancel_all
from benchmarks.measure import Case, Samples, median, once, ratio, side_by_side
from benchmarks.report import Report
from benchmarks.sweeps.project import PATIENCE, SUBMITIT, project
from benchmarks.workbench import Calls, Workbench, refresher

ONE_RUN, HYDRA = "one run", "hydra-submitit, 1,000 points"
SIZES = {1_000: 1.5, 10_000: 2.0, 1_000_000: 2.0}
"""Points: how often the time of one run they may take."""
AGAINST_HYDRA = 1 / 50
MOST_FILES = 10
GROUP = "model=small,large"
LEARNING_RATES = "lr=1e-4,3e-4,1e-3,3e-3,1e-2"


def swept(points: int) -> list[str]:
    """Two value axes and a group of two."""
    return [GROUP, LEARNING_RATES, f"seed=range({points // 10})"]


def bench(bench: Workbench, report: Report, runs: int, nodes: int) -> None:
    cwd = project(bench, "sweeps-launching")
    one = _ours(bench, cwd, ONE_RUN, ["+experiment=short"])
    many = {size: _ours(bench, cwd, f"{size:,} points", ["-m", "+experiment=short", *swept(size)]) for size in SIZES}
    with busy_cluster(bench, nodes):
        samples = side_by_side([one, *many.values()], runs)
        notes = {}
        for size, case in many.items():
            files, notes[case.name] = _counted(bench, case)
            report.target(f"files written on the login side, {size:,} points", files, MOST_FILES, "files")
        if find_spec("hydra_plugins.hydra_submitit_launcher"):
            samples[HYDRA] = [once(_theirs(bench, cwd))]
            notes[HYDRA] = "once, to its submission"
        else:
            report.skip("hydra-submitit-launcher: not installed in this Python")
    report.table("launching sweeps", samples, notes)
    _tell(report, samples, {size: case.name for size, case in many.items()})


def _tell(report: Report, samples: Samples, names: dict[int, str]) -> None:
    for size, limit in SIZES.items():
        report.target(
            f"launch of {size:,} points / of one run", ratio(samples[names[size]], samples[ONE_RUN]), limit, "x"
        )
    if HYDRA in samples:
        quick = median(samples[names[1_000]]) / median(samples[HYDRA])
        report.target("launch of 1,000 points / hydra-submitit's submission of them", quick, AGAINST_HYDRA, "x")


def _ours(bench: Workbench, cwd: Path, name: str, words: list[str]) -> Case:
    argv = [bench.python, "-m", "slurmopt.launch", *words]
    dry = [bench.python, "-m", "slurmopt.launch", "+experiment=short", "launch.dry_run=true"]
    warm = refresher(lambda: bench.run(dry, cwd), FACTS_SERVE)
    return Case(name, argv, cwd, bench.env, warm, lambda: cancel_all(bench))


def _theirs(bench: Workbench, cwd: Path) -> Case:
    argv = [bench.python, "with_hydra.py", *SUBMITIT, *swept(1_000)]
    return Case(HYDRA, argv, cwd, bench.env, after=lambda: cancel_all(bench), until=cwd / "submitit", patience=PATIENCE)


def _counted(bench: Workbench, case: Case) -> tuple[int, str]:
    """How many files the launch writes; and all that it costs, in a run that is not timed."""
    calls = Calls(bench, "sweeps")
    place = bench.place("sweeps-counted")
    once(replace(case, argv=[*case.argv, f"launch.folder={place}"], env={**case.env, "PATH": calls.env["PATH"]}))
    files = sum(path.is_file() for path in place.rglob("*"))
    kib = sum(path.stat().st_size for path in place.rglob("*") if path.is_file()) / 1024
    return files, f"{files} files, {kib:.0f} KiB; {calls}"
