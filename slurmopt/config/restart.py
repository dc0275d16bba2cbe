"""What happens when the time limit comes near."""

from __future__ import annotations

from dataclasses import dataclass

from slurmopt.config.check import one_of, readable
from slurmopt.units import seconds

SIGNALS = ("USR1", "USR2", "INT", "TERM", "HUP", "CONT")


@dataclass(kw_only=True)
class Restart:
    """What happens when the time limit comes near."""

    lead: str = "auto"
    """How long before the time limit the job is told to save and stop (`--signal=B:USR1@LEAD`). `auto`: two minutes, or
    a quarter of a limit that is shorter than eight."""

    forward: str | None = None
    """The signal that a `task.command` gets at that moment: USR1, USR2, INT, TERM, HUP or CONT. Default: none."""

    def __post_init__(self) -> None:
        readable(None if self.lead == "auto" else self.lead, seconds, "restart.lead")
        if self.forward is not None:
            one_of(self.forward, SIGNALS, "restart.forward")
