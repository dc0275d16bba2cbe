"""The protocol that every backend implements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from slurmopt.slurm.script.job import Job


@dataclass(frozen=True)
class Submission:
    """A job that was submitted."""

    job_id: str
    details: dict[str, Any] = field(default_factory=dict)
    """Further fields for the journal."""


class Backend(Protocol):
    """Renders a job's script, and submits that script exactly once."""

    slurm: bool
    """Whether it submits to Slurm, so that the cluster's limits apply."""

    def script(self, job: Job) -> str:
        """The text that `submit` submits, byte for byte."""
        ...

    def submit(self, job: Job, token: str, retry: bool) -> Submission:
        """Submits `job.folder.script`. With `retry` an earlier try may have succeeded, so `token` is looked up
        first."""
        ...
