"""The user's own runs as jobs that used GPUs: each attempt of a run, or of a point of a sweep, is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from slurmopt.errors import RunError, one_line
from slurmopt.estimates.job_history import History, site_clock
from slurmopt.ledger.record import AttemptRecord
from slurmopt.planning.capacity.demand import Job
from slurmopt.report.gather import gather_many, gather_sweeps
from slurmopt.run_folder.sweep_layout import SweepFolder, is_sweep
from slurmopt.runs.all_runs import all_folders
from slurmopt.runs.ownership import owner_of


def own_jobs(folder: Path) -> History:
    """Those of all runs and sweeps in the folder. Raises RunError where none of them used a GPU."""
    own = [run for run in all_folders(folder) if owner_of(run) is None]
    runs, problem = gather_many([run for run in own if not is_sweep(run.path)])
    sweeps, unread, of_sweeps = gather_sweeps([SweepFolder(run.path) for run in own if is_sweep(run.path)])
    records = [*runs, *(point for sweep in sweeps for point in sweep.points.values())]
    attempts = [attempt for record in records for attempt in record.attempts]
    with_gpus = [attempt for attempt in attempts if attempt.unit == "GPU" and attempt.end > attempt.start]
    if not with_gpus:
        where = f"{one_line(str(folder))} ({len(records)} runs)"
        raise RunError(f"plan capacity: no run in {where} used a GPU; valid: --jobs with the output of sacct")
    notes = list(_notes(attempts, with_gpus)) + unread
    if told := problem or of_sweeps:
        notes.append(f"Slurm was not asked, so this is what journals say: {one_line(told)}")
    per_node = max(gpus for attempt in with_gpus for gpus in attempt.gpus.values())
    return History(tuple(map(_job, with_gpus)), max(1, round(per_node)), tuple(notes))


def _job(attempt: AttemptRecord) -> Job:
    gpus = sum(attempt.gpus.values())
    if attempt.allocated is not None:  # a point that shared its GPUs with others
        gpus = attempt.allocated / 1000 / (attempt.end - attempt.start)
    queued = attempt.start if attempt.queued is None else min(attempt.queued, attempt.start)
    return Job(site_clock(queued), site_clock(attempt.start), site_clock(attempt.end), gpus)


def _notes(attempts: list[AttemptRecord], with_gpus: list[AttemptRecord]) -> Iterator[str]:
    if len(attempts) > len(with_gpus):
        yield f"left out: {len(attempts) - len(with_gpus):,} attempts without GPUs"
    if running := sum(attempt.alive for attempt in with_gpus):
        yield f"{running:,} attempts still run: they are counted until now"
