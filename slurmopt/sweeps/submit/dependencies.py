"""`launch.after`: the runs and sweeps that a job waits for, as sbatch takes it.

Slurm starts a job at once whose dependency it has forgotten, also where that had failed: the journals are asked first.
"""

from __future__ import annotations

from pathlib import Path

from slurmopt.config.launch import Launch
from slurmopt.errors import RunError
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.find import select
from slurmopt.runs.status.query import gather
from slurmopt.runs.submit import arrays
from slurmopt.sweeps.status.point_states import BAD
from slurmopt.sweeps.status.query import sweep_states
from slurmopt.sweeps.status.view import state_counts


def dependency(launch: Launch, home: Path) -> list[str]:
    """sbatch's options for `launch.after`, as typed in `home`. RunError for a run that cannot be waited for."""
    jobs: list[str] = []
    for word in launch.after:
        selected = select(word, home / Path(launch.folder).expanduser())
        if isinstance(selected, RunFolder):
            jobs += _of_run(selected, launch.after_failure)
        elif selected.point is not None:
            jobs += _of_run(selected.sweep.point(selected.point), launch.after_failure)
        else:
            jobs += _of_sweep(selected.sweep, launch.after_failure)
    if not jobs:
        return []
    how = "afterany" if launch.after_failure else "afterok"
    return [f"--dependency={how}:{':'.join(jobs)}", "--kill-on-invalid-dep=yes"]


def _of_run(run: RunFolder, any_end: bool) -> list[str]:
    ((status,), problem) = gather([run], fresh=True)
    if status.alive and status.journal.local:
        raise RunError(f"launch.after: {status.label} runs on this machine, and Slurm knows nothing of it")
    if status.alive and status.journal.job is not None:
        return [status.journal.job]
    if status.state == "finished" or (any_end and status.state != "unknown"):
        return []
    why = status.detail or problem
    raise RunError(
        f"launch.after: {status.label} is {status.state}{f' ({why})' if why else ''}; "
        "let it finish first, or set launch.after_failure=true"
    )


def _of_sweep(sweep: SweepFolder, any_end: bool) -> list[str]:
    """Slurm judges a sweep's jobs by itself while they go on; what has ended before it may have forgotten."""
    if sweep.more.exists() and not sweep.sweep_file.exists():
        raise RunError(f"launch.after: {sweep.name}/{sweep.id} has not been submitted; repeat its launch")
    from slurmopt.slurm.queue import queue
    from slurmopt.slurm.states import is_over

    states = sweep_states(sweep, fresh=True)
    bad = states.numbers(*BAD, "cancelled")
    if bad and not any_end:
        raise RunError(
            f"launch.after: {len(bad)} points of {states.label} have failed or were cancelled "
            f"({state_counts(states.counts())}); first: "
            f"slurmopt retry {states.label} --failed; or set launch.after_failure=true"
        )
    alive = {entry.job_id.split("_")[0] for entry in queue(fresh=True).values() if not is_over(entry.state)}
    return [submission.job for submission in arrays.known(sweep) if submission.job in alive]
