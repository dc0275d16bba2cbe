"""What is known of the end of an attempt: a value that the job, the local backend and the login side gather."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from slurmopt.restart import causes


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Evidence on the end of one attempt. A field that could not be collected keeps its default."""

    outcome: str | None = None
    """The outcome according to the ranks themselves, a word of `slurmopt.run_folder.outcome`; None if a rank has
    none."""
    error: str | None = None
    """The error and the traceback of the rank that ended it."""
    rank_logs: str = ""
    """The ends of the logs of rank 0 and of that rank."""
    ended_by: str | None = None
    """The cause, if whoever ended the attempt knows it."""
    full_disk: str | None = None
    """Why a rank could not write its outcome, if a disk or quota is full."""
    signals: tuple[str, ...] = ()
    """The signals that the batch shell got: USR1, TERM."""
    asked: frozenset[str] = frozenset()
    """What first asked the ranks to save and stop: USR1, TERM, rank, or file (of the batch shell)."""
    cancelled: bool = False
    """Whether the user cancelled the run during it."""
    hang: Mapping[str, Any] | None = None
    """The watchdog's finding: rank, node, seconds."""
    job_log: str = ""
    """The end of this attempt's part of the job's log, with the lines of slurmstepd and srun."""
    slurm: Mapping[str, str] = field(default_factory=dict)
    """`scontrol show job`, field by field, when the attempt ended."""
    restarts: int = 0
    """How often Slurm had restarted the job when this attempt began."""
    state: str | None = None
    """The final Slurm state of a job, such as NODE_FAIL; None if Slurm has forgotten the job."""

    @cached_property
    def cause_in_log(self) -> str | None:
        """The cause that slurmstepd's line in the job's log gives."""
        return causes.of_job_log(self.job_log)

    @cached_property
    def cause_by_slurm(self) -> str | None:
        """The cause that Slurm gives for the end of the job: from its state, else from its line in the log."""
        return causes.of_state(self.state or "") or self.cause_in_log

    @property
    def hang_error(self) -> str | None:
        """The watchdog's finding in one line."""
        if self.hang is None:
            return None
        rank, node, seconds = (self.hang.get(name) for name in ("rank", "node", "seconds"))
        alike = self.hang.get("alike")
        if isinstance(alike, int) and alike > 1:
            return f"no step for {seconds} s; {alike} ranks are equally far, and which stopped first is not known"
        return f"no step for {seconds} s; rank {rank} on {node} stopped first"
