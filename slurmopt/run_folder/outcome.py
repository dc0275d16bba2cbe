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
"""75 (EX_TEMPFAIL) and 69 (EX_UNAVAILABLE) are sysexits' words; 137 is what a shell shows for SIGKILL."""


@dataclass
class Outcome:
    """A rank's own account of its end."""

    outcome: str
    time: float
    exit_code: int
    error: str | None = None
    """One line: the exception, or how the command ended."""
    traceback: str | None = None
    result: Any = None
    """What the function returned, where JSON can hold it; the command's exit code otherwise."""
    nodes: list[str] | None = None
    """The nodes at fault, where that is not the rank's own: others that it cannot reach; [] where no node is."""
    pruned: bool = False
    """Whether it finished because its search gave the trial up."""
    by_signal: bool = False
    """Of a requeue: whether it ended because it had been told to leave, and asked for nothing."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
