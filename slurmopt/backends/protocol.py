"""The protocol that every backend implements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from slurmopt.slurm.script.job import Job


@dataclass(frozen=True)
class Submission:
    """A job that was handed over."""

    job_id: str
    details: dict[str, Any] = field(default_factory=dict)
    """What the journal keeps beside the id."""


class Backend(Protocol):
    """Turns a job into a script, and hands that script over exactly once."""

    slurm: bool
    """Whether it submits to Slurm, so that the cluster's limits hold."""

    def script(self, job: Job) -> str:
        """The text that `submit` hands over, byte for byte."""
        ...

    def submit(self, job: Job, token: str, retry: bool) -> Submission:
        """Hands over `job.folder.script`. With `retry` an earlier try may have got through: look `token` up first."""
        ...
