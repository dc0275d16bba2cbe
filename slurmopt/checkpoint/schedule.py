"""When the next save is due, for all tiers: rank 0 measures and decides, all ranks follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slurmopt.checkpoint.interval import Interval
from slurmopt.checkpoint.tiers import Tier


@dataclass(frozen=True)
class Decision:
    """The tiers that a step is saved to, and the step at which to ask again for each."""

    due: list[str]
    look: dict[str, int]


class Schedule:
    """`look` is the same on all ranks: before that step nobody needs to ask anybody."""

    def __init__(self, tiers: list[Tier], mtbf_seconds: float, clock: Callable[[], float]) -> None:
        self._intervals = {tier.name: Interval(tier.every, mtbf_seconds) for tier in tiers}
        self._clock = clock
        self._look: dict[str, int] = {}
        self.begin(0)

    def begin(self, step: int) -> None:
        """The training starts or goes on at `step`."""
        self._from = (step, self._clock())
        self._pace = 0.0
        self._look = {name: each.next_step(step, 0.0, self._clock()) for name, each in self._intervals.items()}

    def silent(self, step: int) -> bool:
        """Whether nothing can be due yet."""
        return all(step < look for look in self._look.values())

    def decide(self, step: int, force: bool) -> Decision:
        """Rank 0's word on `step`."""
        now = self._clock()
        self._measure(step, now)
        due, look = [], dict(self._look)
        for name, interval in self._intervals.items():
            following = interval.next_step(step - 1, self._pace, now) if step >= look[name] else step + 1
            if force or following <= step:
                due.append(name)
                look[name] = interval.next_step(step, self._pace, now)
            elif step >= look[name]:
                look[name] = following
        return Decision(due, look)

    def follow(self, decision: Decision) -> None:
        self._look = decision.look

    def saved(self, names: list[str], step: int, blocked: float) -> None:
        """A snapshot was taken for these tiers; only rank 0's measurements count."""
        now = self._clock()
        for name in names:
            self._intervals[name].saved(step, now, blocked)
            self._look[name] = self._intervals[name].next_step(step, self._pace, now)

    def durable(self, name: str, seconds: float) -> None:
        self._intervals[name].became_durable(seconds)

    def why(self) -> dict[str, str]:
        """Each tier's rhythm and its reason, in a line."""
        return {name: interval.why() for name, interval in self._intervals.items()}

    def _measure(self, step: int, now: float) -> None:
        first, began = self._from
        if step > first:
            self._pace = (now - began) / (step - first)
            self._from = (step, now)
