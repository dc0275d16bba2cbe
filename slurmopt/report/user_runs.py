"""The report on all runs and sweeps of this user in a folder."""

from __future__ import annotations

import time
from pathlib import Path

from slurmopt.errors import one_line
from slurmopt.report.gather import gather_many, gather_sweeps
from slurmopt.report.rollup import RollUp, of_user
from slurmopt.run_folder.sweep_layout import SweepFolder, is_sweep
from slurmopt.runs.all_runs import all_folders, created
from slurmopt.runs.ownership import owner_of


def report_on_user(folder: Path, first: float | None) -> RollUp:
    """Of those that were launched at `first`, seconds since the epoch, or later; None: of all."""
    now = time.time()
    own = [run for run in all_folders(folder) if owner_of(run) is None and (first is None or created(run)[0] >= first)]
    are_sweeps = [is_sweep(run.path) for run in own]
    records, problem = gather_many([run for run, is_one in zip(own, are_sweeps, strict=True) if not is_one])
    sweeps, unread, of_sweeps = gather_sweeps(
        [SweepFolder(run.path) for run, is_one in zip(own, are_sweeps, strict=True) if is_one]
    )
    report = of_user(records, sweeps, f"your runs in {folder}", now, first)
    report.notes += unread
    if problem := problem or of_sweeps:
        report.notes.append(f"Slurm was not asked, so this is what journals say: {one_line(problem)}")
    return report
