"""The monitoring of the job while it runs."""

from __future__ import annotations

from dataclasses import dataclass

from slurmopt.config.check import readable
from slurmopt.units import seconds


@dataclass(kw_only=True)
class Monitor:
    """The monitoring of the job while it runs."""

    heartbeat: str = "10s"
    """The maximum interval between two heartbeats of a rank."""

    def __post_init__(self) -> None:
        readable(self.heartbeat, seconds, "monitor.heartbeat")
