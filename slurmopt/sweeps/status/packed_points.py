"""Reads the events of points that share array tasks, from the journals of these array tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slurmopt.grid.point_ranges import Ranges
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.sweeps.status import point_journals
from slurmopt.sweeps.status.ended_points import Ends
from slurmopt.sweeps.status.point_events import Reader, returns
from slurmopt.sweeps.status.point_journals import Task

_MANY = 50_000
"""Points from which several processes read: fewer take less than a second, and starting processes takes time."""
_MOST_AT_ONCE, _PIECES = 16, 32
"""Array tasks that a process reads at once, and into how many pieces few array tasks are divided."""


@dataclass(frozen=True)
class Packed:
    """The packed points of a sweep."""

    sweep: SweepFolder
    owned: dict[int, Ranges]
    """Submission → its points that no newer one has: only its events count for these."""
    cancelled: Ranges
    """Points that their owner has cancelled."""

    def read(self, reader: Reader, ends: Ends) -> list[Task]:
        """Adds the points that have ended for good to `ends`; returns the array tasks in order, with the other
        points."""
        numbers = list(point_journals.task_numbers(self.sweep))
        if sum(map(len, self.owned.values())) < _MANY:
            return self._take(numbers, reader, ends)
        return list(self._read_in_processes(numbers, reader, ends))

    def _read_in_processes(self, numbers: list[tuple[int, int]], reader: Reader, ends: Ends) -> Iterator[Task]:
        from slurmopt.sweeps.status.parallel import parallel_map

        reader.expect_many()
        size = max(1, min(_MOST_AT_ONCE, len(numbers) // _PIECES))
        pieces = [numbers[at : at + size] for at in range(0, len(numbers), size)]

        def read(piece: list[tuple[int, int]]) -> tuple[Ends, list[Task]]:
            piece_ends = Ends(ends.with_metrics)
            return piece_ends, self._take(piece, reader, piece_ends)

        for piece_ends, tasks in parallel_map(read, pieces):
            ends.extend(piece_ends)
            yield from tasks

    def _take(self, numbers: Sequence[tuple[int, int]], reader: Reader, ends: Ends) -> list[Task]:
        return [self._sorted_out(point_journals.of_task(self.sweep, *number, reader), ends) for number in numbers]

    def _sorted_out(self, task: Task, ends: Ends) -> Task:
        owned = self.owned.get(task.submission, Ranges())
        points = {**task.started, **task.ended}
        all_between = Ranges([(min(points), max(points))] if points else [])
        if all_between.difference(owned):
            points = {point: event for point, event in points.items() if point in owned}
        unfinished = {
            point: task.trace(point)
            for point, event in points.items()
            if point not in task.ended or (event.next is not None and returns(event))
        }
        ended = (
            [event for point, event in points.items() if point not in unfinished]
            if unfinished
            else list(points.values())
        )
        began = [event.time if (event := task.started.get(end.point or 0)) else None for end in ended]
        cancelled = self.cancelled if all_between.intersection(self.cancelled) else Ranges()
        ends.add(ended, task.journal.job, began, cancelled)
        return task.going_on(unfinished)
