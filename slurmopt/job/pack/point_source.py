"""The protocol between the parent of a pack and what chooses its points.

The parent knows nothing of grids and searches. It has one `PointSource`, and calls it in its main thread, which is the
only one, so an answer should take milliseconds:

    total           how many points this array task is to bring to an end; None where nobody knows
    next()          the number of a point to start now, because a place is free. None: none now. It is asked again when
                    a point has ended; the pack is over once nothing runs and the answer is None
    make(point)     the point's folder with its config.yaml; called before every attempt, so it must not mind that all
                    is there already. An error is the point's own: it ends by it, and the others go on
    began(point)    in the forked process of the point's rank 0, just before the task: here a search hooks into
                    `progress`. The object is a copy there: what it changes stays in that process
    ended(end)      a point has ended for good, or failed so that only `slurmopt retry` brings it back

A point whose attempt ends with "requeue" is started again by the parent itself: neither `ended` nor `next` is called
for that. Where the array task must leave, its unfinished points are not told of; the array task's next attempt asks a
new source, whose `next` must name them again (their folders have attempts without a final end). `next` and `ended` may
raise OSError or SlurmoptError: then the pack starts no more points, waits for those that run, and ends with that error.

`slurmopt.job.pack.parent.source_of` chooses the source by `Points.kind`.
"""

from __future__ import annotations

from typing import Protocol

from slurmopt.job.point_end import End
from slurmopt.run_folder.layout import RunFolder


class PointSource(Protocol):
    """The methods that the parent calls."""

    @property
    def total(self) -> int | None: ...

    def next(self) -> int | None: ...

    def make(self, point: int) -> RunFolder: ...

    def began(self, point: int) -> None: ...

    def ended(self, end: End) -> None: ...
