"""A launch that is composed and checked, and not carried out yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurmopt.runs.submit.unfinished_retry import Unfinished
    from slurmopt.slurm.script.job import Job


@dataclass
class Plan:
    """What a launch would do."""

    job: Job
    backend: str
    stored: dict[str, Any]
    """What config.yaml will hold."""
    overrides: list[str]
    source: Path
    """The working directory as it is now; with a snapshot the job runs on a copy of it."""
    existing: bool = False
    """Whether a run that is there already goes on (`launch.run`, `slurmopt retry`)."""
    after: tuple[str | None, str | None] = (None, None)
    """The token and the job of its latest submission when it was found to have ended; where they are others by now,
    another launch has overtaken this plan."""
    changes: dict[str, list[Any]] | None = None
    """What a retry changes: a key → its value before and after. None: config and script stay as they lie there."""
    repeated: Unfinished | None = None
    """The same retry, which broke off after Slurm had its job."""
    estimate: str | None = None
    """When Slurm thinks the job will start."""
    submitted: str | None = None
    """The job that the same launch has become before, where it did not learn that: nothing is submitted."""
