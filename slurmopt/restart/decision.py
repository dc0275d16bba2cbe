"""What follows an attempt's end: another attempt, or the end of the run. Arithmetic on the story so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeVar

from slurmopt.restart import causes
from slurmopt.run_folder.attempts import Attempt
from slurmopt.units import human_seconds

REQUEUE, BY_SLURM, SUBMIT = "requeue", "slurm", "submit"
"""Who brings the run back: the batch shell, Slurm itself, or a new submission."""
_FIRST_PAUSE, _LONGEST_PAUSE = 60, 3600


@dataclass(frozen=True)
class Decision:
    """`next` is REQUEUE, BY_SLURM, SUBMIT, or None: the run has ended."""

    next: str | None
    reason: str
    """Why so, in one line."""
    pause: int = 0
    """Seconds until the next attempt may start."""


@dataclass(frozen=True)
class Progress:
    """The progress of the run, not of the attempt, when an attempt ended."""

    durable: int | None = None
    step: int | None = None
    mark: float | None = None

    def beyond(self, before: Progress) -> bool:
        """Whether this is more than `before`: by checkpointed steps if there are any, else by what else is known."""
        if self.durable is not None or before.durable is not None:
            return (self.durable or 0) > (before.durable or 0)
        if self.mark is not None or before.mark is not None:
            return (self.mark or 0.0) > (before.mark or 0.0)
        return (self.step or 0) > (before.step or 0)


def decide(
    attempts: Sequence[Attempt],
    cause: str,
    budgets: Mapping[str, int | None],
    no_progress: int,
    by: str = REQUEUE,
    node: str | None = None,
) -> Decision:
    """What follows the last of `attempts`, which ended by `cause`. `by` is who would bring the run back, `node` the
    node at fault.

    `budgets`: a cause's key → how often the run comes back after it; None, or no entry, is without limit.
    """
    if cause == causes.FINISHED:
        return Decision(None, "finished")
    if cause == causes.CANCELLED:
        return Decision(None, "cancelled, so it is not restarted")
    left = budget_left(attempts[:-1], cause, budgets)
    if left is not None and left <= 0:
        limit, name = budgets[causes.key(cause)], f"restart.budgets.{causes.key(cause)}"
        return Decision(None, f"{name} is {limit}" + (", and used up" if limit else ""))
    idle = _idle(attempts)
    if idle >= no_progress:
        which = "this attempt" if idle == 1 else f"the last {idle} attempts"
        return Decision(None, f"no progress: {which} added no checkpointed step (restart.no_progress is {no_progress})")
    pause = _pause(attempts) if cause in causes.PAUSED and node is None and by == REQUEUE else 0
    when = f" in {human_seconds(pause)} at the earliest" if pause else ""
    return Decision(by, f"it comes back{when} after: {cause}{_remaining(left)}", pause)


def _pause(attempts: Sequence[Attempt]) -> int:
    """Seconds until the next attempt may start, doubled each time: if the last attempts did not reach their task and no
    node is at fault, an attempt on other nodes would fail too."""
    waiting = list(takewhile(lambda one: not one.began and one.since_retry, reversed(attempts)))
    doubled = min(len(waiting) - 1, _LONGEST_PAUSE // _FIRST_PAUSE)  # a float ends at 2 ** 1024
    return int(min(_FIRST_PAUSE * 2.0**doubled, _LONGEST_PAUSE)) if waiting else 0


def _remaining(left: int | None) -> str:
    if left is None:
        return ""
    return f"; {left - 1} more such ends are allowed" if left > 1 else "; the next such end is final"


def budget_left(attempts: Sequence[Attempt], cause: str, budgets: Mapping[str, int | None]) -> int | None:
    """How often the run may still come back after `cause`; None for no limit."""
    budget = budgets.get(causes.key(cause))
    if budget is None:
        return None
    return budget - sum(one.cause == cause for one in attempts if one.since_retry)


def _idle(attempts: Sequence[Attempt]) -> int:
    """How many of the latest attempts in a row made no progress. Attempts that the cluster kept from their task do not
    count; one that was killed may have reached its task just before, without a heartbeat that shows it."""
    before, idle = Progress(), 0
    for attempt in attempts:
        if not attempt.began and attempt.cause in causes.OF_THE_CLUSTER:
            continue
        now = Progress(
            _most(before.durable, attempt.durable), _most(before.step, attempt.step), _most(before.mark, attempt.mark)
        )
        idle = 0 if now.beyond(before) or not attempt.since_retry else idle + 1
        before = now
    return idle


_Number = TypeVar("_Number", int, float)


def _most(one: _Number | None, other: _Number | None) -> _Number | None:
    return max((value for value in (one, other) if value is not None), default=None)
