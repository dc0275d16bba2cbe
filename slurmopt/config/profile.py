"""The traces of a running run."""

from __future__ import annotations

from dataclasses import dataclass

from slurmopt.config.check import readable, whole_number
from slurmopt.units import byte_count


@dataclass(kw_only=True)
class Profile:
    """The traces of a running run. See [Profiling](profiling.md)."""

    enabled: bool = True
    """Whether `slurmopt profile` can trace the run. A run that nobody traces is not slowed down."""

    most: str = "2GB"
    """The space that all traces of the run may take; after that no more are made."""

    count: int = 50
    """How often the run may be traced."""

    def __post_init__(self) -> None:
        readable(self.most, byte_count, "profile.most")
        whole_number(self.count, 1, "profile.count")
