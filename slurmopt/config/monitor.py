"""What the job tells of itself while it runs."""

from __future__ import annotations

from dataclasses import dataclass

from slurmopt.config.check import readable
from slurmopt.units import seconds


@dataclass(kw_only=True)
class Monitor:
    """What the job tells of itself while it runs."""

    heartbeat: str = "10s"
    """How often each rank writes its heartbeat at the least."""

    def __post_init__(self) -> None:
        readable(self.heartbeat, seconds, "monitor.heartbeat")
