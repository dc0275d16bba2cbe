"""Tells which points still belong to an array task: the user may have cancelled or resubmitted them.

A point belongs to the newest submission that has it. Two array tasks with the same point would end each other's
attempts in turns, so the older one leaves it alone.
"""

from __future__ import annotations

from collections.abc import Callable

from slurmopt.errors import ConfigError, one_line
from slurmopt.grid import submissions
from slurmopt.grid.point_ranges import Ranges
from slurmopt.grid.records import Records
from slurmopt.job.supervisor.attempt_end import say
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.sweep_layout import SweepFolder


class Ownership:
    """Reads the sweep's files at each call. If a file cannot be read, its last known content counts."""

    def __init__(self, sweep: SweepFolder, submission: int, shared: bool = False) -> None:
        """`submission` is that of the array task. `shared`: the points are trials of a search, which move between array
        tasks."""
        self._sweep, self._submission, self._shared = sweep, submission, shared
        self._records = Records(sweep)
        self._cancelled = self._newer = Ranges()
        self._seen: tuple[int, int] | None = None
        self._said: set[str] = set()

    def cancelled(self) -> Ranges:
        """The points that the user has cancelled."""
        self._try(self._read_cancelled)
        return self._cancelled

    def overtaken(self, point: int) -> bool:
        """Whether a newer submission has the point. A submission that sweep.json does not have yet is noticed by its
        attempt."""
        if self._shared:
            return False
        self._try(self._read_newer)
        return point in self._newer or self._records.of_newer(point, self._submission)

    def _read_cancelled(self) -> None:
        self._cancelled = submissions.cancelled(self._sweep)

    def _read_newer(self) -> None:
        path = self._sweep.sweep_file
        facts = held(path).stat()
        now = (facts.st_ino, facts.st_mtime_ns)
        if now != self._seen:
            self._newer, self._seen = submissions.points_of_newer(submissions.read(path), self._submission), now

    def _try(self, look: Callable[[], None]) -> None:
        try:
            look()
        except FileNotFoundError:  # nobody has written it yet
            return
        except (OSError, ConfigError) as error:
            line = one_line(str(error))
            if line not in self._said:
                say(f"the sweep's folder cannot be looked at: {line}")
            self._said.add(line)
