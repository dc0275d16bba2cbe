"""A sweep that is described and checked, and not submitted yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurmopt.config.sweep import TUNING
from slurmopt.grid.point_ranges import Ranges
from slurmopt.run_folder.sweep_layout import SweepFolder
from slurmopt.runs.submit.arrays import Batch
from slurmopt.runs.submit.plan import Plan

if TYPE_CHECKING:
    from slurmopt.config.schema import Settings
    from slurmopt.config.sweep import Sweep
    from slurmopt.grid.points import Points


@dataclass(kw_only=True)
class SweepPlan(Plan):
    """What the launch of a sweep would do. `job.folder` is the sweep's; `stored` is the config of its first point."""

    points: Points
    files: dict[str, bytes] = field(default_factory=dict)
    """What else its folder gets, for the user alone: name → content."""

    @property
    def sweep(self) -> SweepFolder:
        return SweepFolder(self.job.folder.path)


def first_batch(points: Ranges, sweep: Sweep, most_tasks: int) -> Batch:
    """The first of `points` that fit into one array job of at most `most_tasks` tasks, all of a search."""
    if sweep.search is not None:
        return Batch(points, 1, packed=True, tasks=min(workers(sweep), most_tasks))
    points = points.slice(0, most_tasks * sweep.per_task)
    while len(str(points)) > _LONGEST_WORD:  # of a retry the numbers may be far between
        points = points.slice(0, len(points) // 2)
    return Batch(points, sweep.per_task, sweep.packed)


def workers(sweep: Sweep) -> int:
    """How many array tasks a search runs."""
    assert sweep.trials is not None
    if sweep.search in TUNING:  # each trial depends on those before
        return 1
    return min(sweep.workers or sweep.at_once or _WORKERS, sweep.trials)


_WORKERS = 8
_LONGEST_WORD = 60_000
"""Characters of the points in a job's command line; Linux takes 128 KiB a word."""


def not_packable(settings: Settings, backend: str) -> str | None:
    """Why the points cannot be packed; None where they can."""
    if settings.resources.most_nodes > 1:
        return _not_on_several_nodes(settings, backend)
    if settings.task.per in ("node", "job"):
        per = settings.task.per
        return f"with task.per={per} the command starts its own ranks; leave out packing, or set task.per=rank"
    return None


def _not_on_several_nodes(settings: Settings, backend: str) -> str | None:
    """The trials of `slurmopt tune` alone may be job steps on all nodes, one after the other."""
    nodes = f"resources.nodes is {settings.resources.nodes}"
    if settings.sweep.search in TUNING and backend == "local":
        return (
            f"on this machine trials have one node, and {nodes}; valid: resources.nodes=1, or Slurm (without --local)"
        )
    if settings.sweep.search not in TUNING:
        return f"the points share one node's array task, and {nodes}"
    if settings.sweep.side_by_side > 1:
        return f"trials side by side share one node, and {nodes}; leave out sweep.side_by_side, or resources.nodes=1"
    if settings.environment.container.image is not None:
        return f"trials on several nodes cannot be started inside a container, and {nodes}; valid: resources.nodes=1"
    return None
