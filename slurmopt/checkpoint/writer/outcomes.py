"""What became of the saves that were begun: which are under way, which are durable where, and what keeps failing."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from statistics import median

from slurmopt.checkpoint.writer.route import route
from slurmopt.job import signals

_REMEMBERED = 100
_MEASURED = 5
_LOOK_EVERY = 0.5


class Outcomes:
    """Told by the writer's thread, asked by the training's. Times are seconds."""

    def __init__(self, tiers: list[str], say: Callable[[str], None], durable: Callable[[str, int], None]) -> None:
        """`tiers`: fastest first. `say`: a line for people. `durable`: told of each tier and step that became so."""
        self._tiers, self._say, self._durable = tiers, say, durable
        self._changed = threading.Condition()
        self._open: dict[tuple[str, str], int] = {}
        self._settled: dict[tuple[str, str], bool] = {}
        self._failing: set[str] = set()
        self._took: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_MEASURED))
        self.failures = 0
        """Saves in a row that no tier has."""
        self.reason = ""
        """Why the latest one failed."""

    def begin(self, name: str, tiers: list[str], step: int) -> None:
        with self._changed:
            self._open.update({(name, tier): step for tier in tiers})

    def under_way(self) -> list[tuple[str, str]]:
        """The names of saves, and the tiers that do not have them yet."""
        with self._changed:
            return list(self._open)

    def settle(self, name: str, tier: str, problem: str | None, seconds: float | None = None) -> int | None:
        """A save is durable on `tier`, or has failed there: `problem`. Returns its step; None where that was known."""
        with self._changed:
            step = self._open.pop((name, tier), None)
            if step is None:
                return None
            self._settled[name, tier] = problem is None
            while len(self._settled) > _REMEMBERED:
                del self._settled[next(iter(self._settled))]
            if seconds is not None:
                self._took[tier].append(seconds)
            self._count(name, problem)
            if problem is None:
                self._durable(tier, step)
            else:
                self._say(f"{name} was not saved to {tier}: {problem}")
            self._tell_change(tier, problem is not None)
            self._changed.notify_all()
        return step

    def durable_on(self, name: str, tier: str) -> bool:
        return self._settled.get((name, tier), False)

    def durable_anywhere(self, name: str) -> bool:
        return any(self.durable_on(name, tier) for tier in self._tiers)

    def wait(self, done: Callable[[], bool], enough: Callable[[], bool], longest: float = math.inf) -> None:
        """Until `done`. Another signal after the first means that Slurm ends the job soon: then until `enough`."""
        deadline = time.monotonic() + longest
        with self._changed:
            while not self._changed.wait_for(done, timeout=max(0.0, min(_LOOK_EVERY, deadline - time.monotonic()))):
                if (signals.pressed() and enough()) or time.monotonic() >= deadline:
                    return

    def usual_seconds(self) -> float:
        """What a save takes until it is durable, on the tier where that is longest."""
        with self._changed:
            return max((median(took) for took in self._took.values()), default=0.0)

    def route(self, due: list[str], buffers: int, failures: int) -> list[str]:
        """The tiers that a save goes to which is due on `due`. Well before `failures` end the run it goes to all, for
        one of them may take it."""
        with self._changed:
            if due and 2 * self.failures >= failures:
                return list(self._tiers)
            return route(due, self._tiers, {tier for _, tier in self._open}, self._failing, buffers)

    def _count(self, name: str, problem: str | None) -> None:
        """A save that was due on slower tiers alone, and failed, ends no run: the next goes to the faster ones too."""
        if problem is None:
            self.failures = 0
            return
        self.reason = problem
        fastest_tried = (name, self._tiers[0]) in self._settled
        if fastest_tried and not self.durable_anywhere(name) and not any(each == name for each, _ in self._open):
            self.failures += 1

    def _tell_change(self, tier: str, failing: bool) -> None:
        """Once, however many saves fail in between."""
        if failing == (tier in self._failing):
            return
        self._failing ^= {tier}
        faster = self._tiers[: self._tiers.index(tier)]
        if not failing:
            self._say(f"{tier} takes saves again")
        elif faster:
            self._say(f"until {tier} takes saves again, what is due there goes to {' and '.join(faster)} as well")
