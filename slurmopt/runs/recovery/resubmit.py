"""Submitting a run afresh: the same folder and script, as another job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from slurmopt.errors import RunError
from slurmopt.grid.point_ranges import Ranges
from slurmopt.restart import exclusions
from slurmopt.run_folder import events
from slurmopt.run_folder.access.files import read_script
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder, point_number, sweep_of
from slurmopt.runs.journal import point_count
from slurmopt.runs.submit import arrays
from slurmopt.runs.submit.exactly_once import journaled, run_lock
from slurmopt.slurm.cluster.facts import in_cluster
from slurmopt.slurm.script.quoting import shell
from slurmopt.slurm.submit import sbatch_once
from slurmopt.units import seconds

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings


_PATIENCE = 300.0
"""Seconds: at a common end, such as a maintenance, all array tasks of a sweep ask at once."""


def submit_again(run: RunFolder, backend: str, settings: Settings, after: str | None = None) -> str:
    """Submits the run's script once more and returns the new job's id. To be called with the run's lock held.

    `after`: a job that must be over first, so that two of one run never run together. Nodes that the run has excluded
    stay so. Raises what `slurmopt.slurm.submit.sbatch_once` does.
    """
    _refuse_a_copy(run)
    options = [f"--dependency=afterany:{after}"] if after else []
    if nodes := _excluded(run, settings):
        options.append(f"--exclude={nodes}")
    timeout = seconds(settings.launch.submit_timeout)
    sweep = sweep_of(run)
    with journaled(run, backend) as submitting:
        token, retry = submitting.token, submitting.retry
        if sweep is not None:
            submitting.job = _array_for(sweep, run, settings, options, token)
        else:
            submitting.job = sbatch_once(run.script, settings.resources.comment, token, timeout, retry, options)
        submitting.details = {"by": "tend", **in_cluster()}
    return submitting.job


def _array_for(sweep: SweepFolder, run: RunFolder, settings: Settings, options: list[str], token: str) -> str:
    """Another array job for the point, or the points of the array task, that `run` is; the id of its one task. Once for
    each `token` of the run's own journal: an earlier try may have come as far as this."""
    number = point_number(run)
    with run_lock(sweep.run, _PATIENCE):
        count = point_count(sweep)
        arrays.settle(sweep, settings, count)
        if (submission := arrays.of_part(sweep, token)) is not None:
            return f"{submission.job}_{submission.array}"
        if number is not None:
            ((points, among),) = arrays.numbered_as_before(sweep, Ranges.of([number]))
            batch = arrays.Batch(points, 1, packed=False, options=tuple(options), among=among, part=token)
        else:
            of, task = map(int, run.path.name.split("-"))
            earlier = next((earlier for earlier in arrays.known(sweep) if earlier.number == of), None)
            if earlier is None:
                raise RunError(f"{sweep.events} does not tell of submission {of}, which it was a part of")
            points = earlier.points_of(task)
            workers = 1 if earlier.tasks is not None else None
            size = max(1, len(points))
            batch = arrays.Batch(points, size, packed=True, tasks=workers, options=tuple(options), part=token)
        submission = arrays.submit_array(sweep, settings, batch, count)
    return f"{submission.job}_{submission.array}"


def _refuse_a_copy(run: RunFolder) -> None:
    """The script of a copied run folder works in the original."""
    sweep = sweep_of(run)
    line = f"export SLURMOPT_SWEEP={shell(sweep.path)}" if sweep else f"export SLURMOPT_RUN_FOLDER={shell(run.path)}"
    if line not in read_script(run.script).splitlines():
        raise RunError(f"{run.script} was made for another folder; slurmopt retry {run.path} makes it anew")


def _excluded(run: RunFolder, settings: Settings) -> str:
    """The nodes to leave out; "" where the script's own option stays in force."""
    journal = events.read(run.events, exclusions.EVENT)
    most = settings.restart.exclude.nodes
    return exclusions.nodes_to_exclude(journal, time.time(), most, settings.resources.exclude) or ""
