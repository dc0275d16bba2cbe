"""Outcomes: tracks which saves are in progress, which are durable on which tier, and which tiers fail."""

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
    """Thread-safe: the writer's thread updates it, the training's reads it. Times are seconds."""

    def __init__(self, tiers: list[str], log: Callable[[str], None], durable: Callable[[str, int], None]) -> None:
        """`tiers`: fastest first. `log` receives messages, `durable` each tier and step of a save that became
        durable."""
        self._tiers, self._log, self._durable = tiers, log, durable
        self._changed = threading.Condition()
        self._open: dict[tuple[str, str], int] = {}
        self._settled: dict[tuple[str, str], bool] = {}
        self._failing: set[str] = set()
        self._durations: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_MEASURED))
        self.failures = 0
        """The number of saves in a row that are durable on no tier."""
        self.reason = ""
        """The reason of the latest failure."""

    def begin(self, name: str, tiers: list[str], step: int) -> None:
        with self._changed:
            self._open.update({(name, tier): step for tier in tiers})

    def under_way(self) -> list[tuple[str, str]]:
        """The saves in progress: pairs of a name and a tier."""
        with self._changed:
            return list(self._open)

    def settle(self, name: str, tier: str, problem: str | None, seconds: float | None = None) -> int | None:
        """Records that a save is durable on `tier`, or failed with `problem`. Returns its step, None if already
        settled."""
        with self._changed:
            step = self._open.pop((name, tier), None)
            if step is None:
                return None
            self._settled[name, tier] = problem is None
            while len(self._settled) > _REMEMBERED:
                del self._settled[next(iter(self._settled))]
            if seconds is not None:
                self._durations[tier].append(seconds)
            self._count(name, problem)
            if problem is None:
                self._durable(tier, step)
            else:
                self._log(f"{name} was not saved to {tier}: {problem}")
            self._log_change(tier, problem is not None)
            self._changed.notify_all()
        return step

    def durable_on(self, name: str, tier: str) -> bool:
        return self._settled.get((name, tier), False)

    def durable_anywhere(self, name: str) -> bool:
        return any(self.durable_on(name, tier) for tier in self._tiers)

    def wait(self, done: Callable[[], bool], enough: Callable[[], bool], longest: float = math.inf) -> None:
        """Waits for `done`; after a second signal, when Slurm is about to kill the job, only for `enough`."""
        deadline = time.monotonic() + longest
        with self._changed:
            while not self._changed.wait_for(done, timeout=max(0.0, min(_LOOK_EVERY, deadline - time.monotonic()))):
                if (signals.pressed() and enough()) or time.monotonic() >= deadline:
                    return

    def usual_seconds(self) -> float:
        """The median duration of a save on the slowest tier."""
        with self._changed:
            return max((median(durations) for durations in self._durations.values()), default=0.0)

    def route(self, due: list[str], buffers: int, failures: int) -> list[str]:
        """The tiers for a save that is due on `due`: all of them after half of `failures`, since one may still work."""
        with self._changed:
            if due and 2 * self.failures >= failures:
                return list(self._tiers)
            return route(due, self._tiers, {tier for _, tier in self._open}, self._failing, buffers)

    def _count(self, name: str, problem: str | None) -> None:
        """Counts failures. A failed save to slower tiers only does not count: the next goes to the faster ones too."""
        if problem is None:
            self.failures = 0
            return
        self.reason = problem
        fastest_tried = (name, self._tiers[0]) in self._settled
        if fastest_tried and not self.durable_anywhere(name) and not any(each == name for each, _ in self._open):
            self.failures += 1

    def _log_change(self, tier: str, failing: bool) -> None:
        """Logs when a tier begins to fail and when it recovers."""
        if failing == (tier in self._failing):
            return
        self._failing ^= {tier}
        faster = self._tiers[: self._tiers.index(tier)]
        if not failing:
            self._log(f"{tier} takes saves again")
        elif faster:
            self._log(f"until {tier} takes saves again, what is due there goes to {' and '.join(faster)} as well")
