"""What reading and the whole command of a report take: a large run of four days, and a thousand runs of one user."""

from __future__ import annotations

from benchmarks import report_folders
from benchmarks.measure import Case, median, side_by_side
from benchmarks.report import Report
from benchmarks.workbench import ROOT, Workbench
from slurmopt.run_folder.layout import RunFolder

NODES, GPUS, ATTEMPTS, DAYS = 128, 8, 2, 4.0
LARGE_LIMIT, LARGE_MIB = 2.0, 200.0
MANY, MANY_LIMIT = 1000, 3.0
READ_LARGE = """
import sys
from pathlib import Path
from slurmopt.report.gather import gather
from slurmopt.run_folder.layout import RunFolder
record = gather(RunFolder(Path(sys.argv[1])))
assert record.ledger.allocated and not record.problems, record.problems
"""
READ_MANY = """
import sys
from pathlib import Path
from slurmopt.report.gather import gather_many
from slurmopt.runs.all_runs import all_runs
records, _ = gather_many(all_runs(Path(sys.argv[1])))
assert all(record.ledger.allocated for record in records)
"""


def bench(bench: Workbench, report: Report, runs: int) -> None:
    large, many = bench.place("large-run"), bench.place("many-runs")
    path = large / "runs" / "large" / "one"
    path.parent.mkdir(parents=True)
    report_folders.make_large_run(RunFolder(path), NODES, GPUS, ATTEMPTS, DAYS)
    report_folders.make_user_runs(many / "runs", MANY)
    env = {**bench.env, "PYTHONPATH": str(ROOT)}
    command = [bench.python, "-m", "slurmopt", "report"]
    html = str(large / "page.html")
    of_run, of_many = f"{NODES} x {GPUS} GPUs, {DAYS:g} days", f"{MANY} runs"
    cases = [
        Case(f"reading {of_run}", [bench.python, "-c", READ_LARGE, str(path)], large, env),
        Case(f"report of {of_run}", [*command, "large/one"], large, env),
        Case(f"report --html of {of_run}", [*command, "large/one", "--html", html], large, env),
        Case(f"reading {of_many}", [bench.python, "-c", READ_MANY, str(many / "runs")], many, env),
        Case(f"report --user over {of_many}", [*command, "--user"], many, env),
    ]
    samples = side_by_side(cases, runs)
    report.table("report", samples)
    for case in cases:
        report.target(case.name, median(samples[case.name]), MANY_LIMIT if case.cwd == many else LARGE_LIMIT, "s")
        if case.cwd == large:
            peak = max(sample.peak_mib or 0.0 for sample in samples[case.name])
            report.target(f"{case.name}, peak memory of a process", peak, LARGE_MIB, "MiB")
