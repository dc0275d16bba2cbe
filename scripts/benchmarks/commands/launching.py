"""A dry run of the quickstart beside an empty Hydra application."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.commands.imports import check_imports
from benchmarks.measure import Case, nothing, ratio, side_by_side
from benchmarks.report import Report
from benchmarks.workbench import Calls, Workbench, refresher

LIMIT = 1.5
EMPTY = """import hydra


@hydra.main(version_base=None, config_path=None)
def main(config):
    pass


main()
"""
DRY_RUN = ("-m", "slurmopt.launch", "+experiment=quickstart", "launch.dry_run=true")
FACTS_SERVE = 40.0
"""Seconds; the cluster's facts are shared for 60."""


def bench(bench: Workbench, report: Report, runs: int) -> None:
    cwd = bench.place("launching")
    (cwd / "empty.py").write_text(EMPTY)
    cases = [Case("empty Hydra app", [bench.python, "empty.py"], cwd, bench.env)]
    calls = Calls(bench, "launching")
    if bench.slurm:
        warm = refresher(lambda: bench.run([bench.python, *DRY_RUN], cwd), FACTS_SERVE)
        cases.append(_case(bench, "sbatch", calls.env, warm))
    else:
        report.skip("dry run with backend sbatch: no cluster")
    cases.append(_case(bench, "local", bench.env))
    samples = side_by_side(cases, runs)
    report.table("launching", samples, {"dry run, sbatch": f"Slurm's commands called: {calls}"})
    for case in cases[1:]:
        report.target(f"{case.name} / empty Hydra app", ratio(samples[case.name], samples[cases[0].name]), LIMIT, "x")
    check_imports(bench, report, cwd, "slurmopt.launch", DRY_RUN[2:], ("torch", "boto3", "pynvml"))


def _case(bench: Workbench, backend: str, env: Mapping[str, str], before: Callable[[], None] = nothing) -> Case:
    argv = [bench.python, *DRY_RUN, f"launch.backend={backend}"]
    cwd = bench.folder / "launching"
    return Case(f"dry run, {backend}", argv, cwd, env, before)
