"""All that a job script is made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slurmopt.config.restart import policy_of
from slurmopt.config.schema import Settings
from slurmopt.errors import ConfigError
from slurmopt.restart.policy import Policy
from slurmopt.run_folder.layout import RunFolder
from slurmopt.units import human_seconds, seconds


@dataclass(frozen=True)
class Array:
    """How the array tasks of a sweep run their points."""

    packed: bool
    """Whether a parent starts them; else each array task is one point."""
    side_by_side: int = 1
    search: bool = False


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that a script is made from."""

    name: str
    folder: RunFolder
    settings: Settings
    workdir: Path
    python: str
    """The Python of the batch shell: the one that launched."""
    version: str
    made_from: str
    """What was typed, for the script's first lines."""
    local: bool = False
    """Whether it is to run as processes on this machine."""
    submitit: bool = False
    """Whether each rank starts through submitit's own entry."""
    sweep: Array | None = None
    """Whether the script is that of a sweep's array tasks; `folder` is the sweep's then."""
    after: tuple[str, ...] = ()
    """sbatch's options for what it starts after; no part of the script, which may be submitted again."""

    @property
    def packed(self) -> bool:
        return self.sweep is not None and self.sweep.packed

    @property
    def point_steps(self) -> bool:
        """Whether the parent of a packed array task starts each point as a job step on all nodes."""
        return self.packed and not self.local and self.settings.resources.most_nodes > 1

    @property
    def starts_own_steps(self) -> bool:
        """Whether the script starts one process beside itself, which starts the ranks by its own srun."""
        return self.settings.task.per == "job" or self.point_steps

    @property
    def in_step(self) -> bool:
        """Whether the script starts the ranks by srun; else it starts one process, beside itself."""
        return not self.local and not self.starts_own_steps


def processes_per_node(job: Job) -> int:
    """How many processes the step starts on a node; of a packed array task it is the parent alone. Where another srun
    starts them: how many that is to start."""
    if job.settings.task.per == "node" or (job.packed and not job.point_steps):
        return 1
    return job.settings.resources.ranks_per_node


def cpus_per_process(job: Job) -> int | None:
    """A process that stands for a whole node gets the cores of all its ranks."""
    resources = job.settings.resources
    if resources.cpus_per_task is None:
        return None
    return resources.cpus_per_task * (resources.ranks_per_node // processes_per_node(job))


def lead(settings: Settings) -> int:
    """Seconds before the time limit at which the job is told: `restart.lead`, or what suits the limit."""
    limit = seconds(settings.resources.time) if settings.resources.time is not None else None
    if settings.restart.lead == "auto":
        return min(120, max(1, limit // 4)) if limit is not None else 120
    chosen = seconds(settings.restart.lead)
    if limit is not None and chosen >= limit:
        raise ConfigError(
            f"{human_seconds(chosen)} is not shorter than resources.time ({human_seconds(limit)})", "restart.lead"
        )
    return chosen


def policy(job: Job) -> Policy:
    """When the run, or each point of the sweep, comes back."""
    settings = job.settings
    durable = settings.checkpoint.durable_tier
    return policy_of(settings.restart, settings.task, settings.resources, job.workdir, durable)
