"""The outcomes of ranks, attempts and runs, with their exit statuses: one table for both sides."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

FINISHED = "finished"
USER_ERROR = "user error"
KILLED = "killed"
INFRASTRUCTURE = "infrastructure"
REQUEUE = "requeue"

EXIT_STATUS = {FINISHED: 0, USER_ERROR: 1, KILLED: 137, INFRASTRUCTURE: 69, REQUEUE: 75}
"""75 (EX_TEMPFAIL) and 69 (EX_UNAVAILABLE) are from sysexits.h; 137 is a shell's status for SIGKILL."""


@dataclass
class Outcome:
    """How a rank ended, in its own view."""

    outcome: str
    time: float
    exit_code: int
    error: str | None = None
    """One line: the exception, or how the command ended."""
    traceback: str | None = None
    result: Any = None
    """What the function returned, if JSON can hold it; for a command its exit code."""
    nodes: list[str] | None = None
    """The nodes at fault if that is not the rank's own, such as nodes that it cannot reach; [] if no node is."""
    pruned: bool = False
    """Whether it finished because its search gave the trial up."""
    note: str | None = None
    """What the training said of its end, if it finished: that it stopped early."""
    by_signal: bool = False
    """For the outcome requeue: whether the task ended because of a stop signal, without asking for a requeue."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
