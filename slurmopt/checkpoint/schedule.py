"""When the next save is due, for all tiers: rank 0 measures and decides, all ranks follow."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

from slurmopt.checkpoint.interval import Interval
from slurmopt.checkpoint.tiers import Tier
from slurmopt.units import steps_or_seconds

_WAIT_FRACTION = 8
"""A save that waits for room is looked at again after such a part of the steps that it has waited."""


@dataclass(frozen=True)
class Decision:
    """The tiers that a step is saved to, and the step at which to ask again for each. `unique`: what the save's folder
    is named after, besides its step."""

    due: list[str]
    look: dict[str, int]
    unique: str = ""


class Schedule:
    """`look` is the same on all ranks: before that step nobody needs to ask anybody."""

    def __init__(self, tiers: list[Tier], mtbf_seconds: float, clock: Callable[[], float]) -> None:
        self._intervals = {tier.name: Interval(tier.every, mtbf_seconds) for tier in tiers}
        self._clock = clock
        self._measured = {tier.name for tier in tiers if steps_or_seconds(tier.every)[0] != "steps"}
        self._saved: dict[str, int] = {}
        self._next: dict[str, int] = {}
        self._told: dict[str, int] = {}
        self._owed: set[str] = set()
        self._waits_since: int | None = None
        self._look: dict[str, int] = {}
        self._turn = threading.Lock()  # `durable` comes from another thread
        self.begin(0)

    def begin(self, step: int) -> None:
        """The training starts or goes on at `step`."""
        self._from = (step, self._clock())
        self._pace = 0.0
        self._look_at({name: each.next_step(step, 0.0, self._clock()) for name, each in self._intervals.items()})

    def silent(self, step: int) -> bool:
        """Whether nothing can be due yet."""
        return step < self._first_look

    def expects(self, step: int, force: bool) -> bool:
        """Whether a save will be taken at `step` as far as all ranks know by themselves: not where rank 0's clock
        decides, nor while one is put off, for nobody knows whether all have room by now."""
        if self._waits_since is not None:
            return force
        known = self._owed | (self._look.keys() - self._measured)
        return force or any(step >= self._look[name] for name in known)

    def decide(self, step: int, force: bool) -> Decision:
        """Rank 0's word on `step`."""
        with self._turn:
            return self._decided(step, force)

    def _decided(self, step: int, force: bool) -> Decision:
        now = self._clock()
        self._measure(step, now)
        due, look = [], dict(self._look)
        for name, interval in self._intervals.items():
            following = interval.next_step(step - 1, self._pace, now) if step >= look[name] else step + 1
            if force or name in self._owed or following <= step:
                due.append(name)
                look[name] = interval.next_step(step, self._pace, now)
            elif step >= look[name]:
                look[name] = following
        return Decision(due, look)

    def follow(self, decision: Decision) -> None:
        self._look_at(decision.look)

    def put_off(self, decision: Decision, step: int) -> None:
        """No buffer is free on some rank. What is due stays so; the ranks ask each other again after an eighth of the
        steps that it has waited, and not at each step: a slow tier would cost each of them an exchange."""
        if self._waits_since is None:
            self._waits_since = step
        self._owed.update(decision.due)
        again = step + max(1, (step - self._waits_since) // _WAIT_FRACTION)
        self._look_at({**decision.look, **dict.fromkeys(decision.due, again)})

    def _look_at(self, steps: dict[str, int]) -> None:
        self._look = steps
        self._first_look: float = min(steps.values(), default=math.inf)

    def saved(self, names: list[str], step: int, blocked: float) -> None:
        """A snapshot was taken for these tiers; `blocked` is NaN where it is no measure for later ones. Each rank
        measures, and rank 0's measurements count: so `_look`, which must be the same on all ranks, never follows from
        them but by way of `follow`."""
        now = self._clock()
        self._waits_since = None
        with self._turn:
            self._owed.difference_update(names)
            for name in names:
                self._intervals[name].saved(step, now, blocked)
                self._saved[name] = step
                self._next[name] = self._intervals[name].next_step(step, self._pace, now)

    def durable(self, name: str, seconds: float) -> None:
        with self._turn:
            self._intervals[name].became_durable(seconds)

    def news(self) -> list[str]:
        """A line for each tier whose rhythm follows from measurements and has changed by a quarter: it, and why."""
        lines = []
        for name, since in self._saved.items():
            span, told = self._next[name] - since, self._told.get(name, 0)
            if name in self._measured and not 0.8 * told <= span <= 1.25 * told:
                self._told[name] = span
                lines.append(f"{name} {self._intervals[name].why()}")
        return lines

    def _measure(self, step: int, now: float) -> None:
        first, began = self._from
        if step > first:
            self._pace = (now - began) / (step - first)
            self._from = (step, now)
