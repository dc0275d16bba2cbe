"""Schedules saves for all tiers: rank 0 measures and decides, all ranks follow its decision."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

from slurmopt.checkpoint.interval import Interval
from slurmopt.checkpoint.tiers import Tier
from slurmopt.units import steps_or_seconds

_WAIT_FRACTION = 8
"""A postponed save is tried again after this fraction of the steps that it has waited."""


@dataclass(frozen=True)
class Decision:
    """The tiers that are due at a step, and for each tier the step of the next check. `unique` and the step name the
    folder of the save."""

    due: list[str]
    next_checks: dict[str, int]
    unique: str = ""


class Schedule:
    """The steps of the next checks are equal on all ranks: before them no rank needs to communicate."""

    def __init__(self, tiers: list[Tier], mtbf_seconds: float, clock: Callable[[], float]) -> None:
        self._intervals = {tier.name: Interval(tier.every, mtbf_seconds) for tier in tiers}
        self._clock = clock
        self._measured = {tier.name for tier in tiers if steps_or_seconds(tier.every)[0] != "steps"}
        self._saved: dict[str, int] = {}
        self._next: dict[str, int] = {}
        self._reported: dict[str, int] = {}
        self._overdue: set[str] = set()
        self._waits_since: int | None = None
        self._next_checks: dict[str, int] = {}
        self._turn = threading.Lock()  # `durable` is called from another thread
        self.begin(0)

    def begin(self, step: int) -> None:
        """The training starts or resumes at `step`."""
        self._from = (step, self._clock())
        self._pace = 0.0
        self._set_next_checks(
            {name: each.next_step(step, 0.0, self._clock()) for name, each in self._intervals.items()}
        )

    def is_before_next_check(self, step: int) -> bool:
        """Whether no tier can be due yet."""
        return step < self._earliest_check

    def will_save(self, step: int, force: bool) -> bool:
        """Whether all ranks know without communication that a save will be taken at `step`: not where rank 0's clock
        decides, nor while a save is postponed, since the other ranks' buffers are unknown."""
        if self._waits_since is not None:
            return force
        known = self._overdue | (self._next_checks.keys() - self._measured)
        return force or any(step >= self._next_checks[name] for name in known)

    def decide(self, step: int, force: bool) -> Decision:
        """Rank 0's decision on `step`."""
        with self._turn:
            return self._decide(step, force)

    def _decide(self, step: int, force: bool) -> Decision:
        now = self._clock()
        self._measure(step, now)
        due, next_checks = [], dict(self._next_checks)
        for name, interval in self._intervals.items():
            following = interval.next_step(step - 1, self._pace, now) if step >= next_checks[name] else step + 1
            if force or name in self._overdue or following <= step:
                due.append(name)
                next_checks[name] = interval.next_step(step, self._pace, now)
            elif step >= next_checks[name]:
                next_checks[name] = following
        return Decision(due, next_checks)

    def follow(self, decision: Decision) -> None:
        self._set_next_checks(decision.next_checks)

    def postpone(self, decision: Decision, step: int) -> None:
        """Postpones a save because some rank has no free buffer. The next check is after an eighth of the steps that
        the save has waited, not at each step, since each check costs an exchange between the ranks."""
        if self._waits_since is None:
            self._waits_since = step
        self._overdue.update(decision.due)
        again = step + max(1, (step - self._waits_since) // _WAIT_FRACTION)
        self._set_next_checks({**decision.next_checks, **dict.fromkeys(decision.due, again)})

    def _set_next_checks(self, steps: dict[str, int]) -> None:
        self._next_checks = steps
        self._earliest_check: float = min(steps.values(), default=math.inf)

    def saved(self, names: list[str], step: int, blocked: float) -> None:
        """Records a snapshot for these tiers; `blocked` is NaN where it does not predict later saves.

        Each rank measures, but only rank 0's measurements count. So `_next_checks`, which must be equal on all ranks,
        changes only in `follow`.
        """
        now = self._clock()
        self._waits_since = None
        with self._turn:
            self._overdue.difference_update(names)
            for name in names:
                self._intervals[name].saved(step, now, blocked)
                self._saved[name] = step
                self._next[name] = self._intervals[name].next_step(step, self._pace, now)

    def durable(self, name: str, seconds: float) -> None:
        with self._turn:
            self._intervals[name].became_durable(seconds)

    def changed_intervals(self) -> list[str]:
        """A line for each measured tier whose interval has changed by a quarter: the interval and its reason."""
        lines = []
        for name, since in self._saved.items():
            span, reported = self._next[name] - since, self._reported.get(name, 0)
            if name in self._measured and not 0.8 * reported <= span <= 1.25 * reported:
                self._reported[name] = span
                lines.append(f"{name} {self._intervals[name].why()}")
        return lines

    def _measure(self, step: int, now: float) -> None:
        first, began = self._from
        if step > first:
            self._pace = (now - began) / (step - first)
            self._from = (step, now)
