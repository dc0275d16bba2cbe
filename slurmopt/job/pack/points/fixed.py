"""Chooses the points of a grid: those of the array task that have not ended, in order."""

from __future__ import annotations

from slurmopt.grid.point_folder import make_point
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.points import Points
from slurmopt.grid.records import Records
from slurmopt.job.pack.journal import TaskJournal, end_in_own_journal
from slurmopt.job.pack.points.ownership import Ownership
from slurmopt.job.point_end import End
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.sweep_layout import SweepFolder


class FixedPoints:
    """A `PointSource`."""

    def __init__(
        self,
        sweep: SweepFolder,
        points: Points,
        own_points: Ranges,
        journal: TaskJournal,
        job: str,
        ownership: Ownership,
        task: str,
    ) -> None:
        """`mine` has the points of this array task. `job` is its id in Slurm, `task` its name in the sweep's folder."""
        self._sweep, self._points, self._journal, self._job, self._task = sweep, points, journal, job, task
        self._mine, self._ownership = own_points, ownership
        self._left = iter(own_points)
        self._records = Records(sweep)

    @property
    def total(self) -> int:
        return len(self._mine)

    def next(self) -> int | None:
        for point in self._left:
            if self._journal.has_ended(point):
                continue
            try:
                end = end_in_own_journal(point, self._records.journal(point))
            except OSError:  # whoever starts it will say what is wrong with its folder
                return point
            if end is not None:  # who died between the two lines is spoken for here
                self._journal.end(end)
            elif point not in self._ownership.cancelled():
                return point
        return None

    def make(self, point: int) -> RunFolder:
        return make_point(self._sweep, self._points, point, self._job, None, task=self._task, records=self._records)

    def began(self, point: int) -> None:
        """Does nothing."""

    def ended(self, end: End) -> None:
        """Does nothing, as the journals have the end."""
