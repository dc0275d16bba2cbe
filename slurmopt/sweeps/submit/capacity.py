"""How many array tasks may be submitted now: the site's limits, and no more waiting in the queue than is of use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slurmopt.run_folder.sweep_layout import SweepFolder

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings


@dataclass(frozen=True)
class Room:
    """What can be submitted now."""

    pending: int
    """Array tasks of the sweep that wait in the queue."""
    array_size: int
    """Tasks of the largest array that is submitted."""
    submit: int | None
    """How many more jobs the user may submit; None is without limit."""

    @property
    def tasks(self) -> int:
        """Array tasks of the next array job; 0: none now.

        A million waiting tasks help nobody: the next job comes once fewer wait than one array has. Of a tight limit
        half must be free, or nothing wait any more: a job for each place that becomes free would flood slurmctld.
        """
        if self.pending >= self.array_size:
            return 0
        if self.submit is None:
            return self.array_size
        return min(self.array_size, max(0, self.submit)) if self.submit >= self.pending else 0

    def after(self, tasks: int) -> Room:
        """The room that is left once so many have been submitted."""
        left = None if self.submit is None else self.submit - tasks
        return replace(self, pending=self.pending + tasks, submit=left)

    def at_most(self, tasks: int) -> Room:
        """The same, once Slurm has refused more."""
        return replace(self, submit=tasks)


def room(sweep: SweepFolder, settings: Settings) -> Room:
    """The room there is now. Raises SlurmUnreachable."""
    from slurmopt.slurm.cluster.facts import facts
    from slurmopt.slurm.cluster.submit_limits import submit_room

    cluster = facts()
    pending = _pending(sweep) if sweep.sweep_file.exists() else 0  # of the first array job nothing waits yet
    # An array that would bring slurmctld over its count of jobs is not refused: sbatch waits for minutes.
    largest = min(cluster.max_array_size, max(1, cluster.max_job_count // 4))
    return Room(pending, largest, submit_room(settings.resources, cluster))


def _pending(sweep: SweepFolder) -> int:
    from slurmopt.slurm.queue import queue

    script = str(sweep.script)
    return sum(entry.tasks for entry in queue(fresh=True).values() if entry.state == "PENDING" and entry.runs(script))
