"""Decides from the steps of a training when it is to be traced. Pure: counts and seconds in, reasons out.

Step times are means over windows of at least five seconds and five steps, in which the training did nothing else (a
checkpoint, an evaluation). A window is slow above median + 3 · MAD of the windows before it, where the MAD, the median
absolute deviation from the median, counts as at least 2 % of the median. Median and MAD for step times as in
`SpikeDetection` of Lightning for losses.
"""

from __future__ import annotations

import statistics
from collections import deque

from slurmopt.config.profile import Automatic

HEALTHY, SLOW, BELOW, SCHEDULE = "healthy", "slow-steps", "below-best", "schedule"
WINDOW_SECONDS, WINDOW_STEPS = 5.0, 5
_SETTLED = 6
"""Windows after which a training has warmed up."""
_IN_A_ROW = 3
_MOST = 500
_DEVIATIONS, _LEAST_DEVIATION = 3.0, 0.02
_WITHOUT_STEPS = 60.0
"""Seconds after which a training without steps is traced as healthy."""


class Triggers:
    """The windows of one attempt."""

    def __init__(self, options: Automatic, now: float) -> None:
        self._options, self._began = options, now
        self._windows: deque[float] = deque(maxlen=_MOST)
        self._best: float | None = None
        self._last: tuple[float, float] | None = None
        self._healthy = not options.healthy
        self._scheduled, self._triggered = now, -float("inf")

    def skip(self) -> None:
        """Forgets the window that has begun: a trace is being made, and slows the steps down."""
        self._last = None

    def look(self, steps: float, seconds: float, now: float) -> str | None:
        """The reason to trace the run now. `steps`: how many it has made; `seconds`: how long it took for them."""
        if self._last is None or steps < self._last[0]:
            self._last = steps, seconds
        made, took = steps - self._last[0], seconds - self._last[1]
        if made >= WINDOW_STEPS and took >= WINDOW_SECONDS:
            self._last = steps, seconds
            self._add(took / made)
        return self._reason(steps, now)

    def _add(self, step_time: float) -> None:
        self._windows.append(step_time)
        if len(self._windows) >= _SETTLED:
            recent = self._recent()
            self._best = recent if self._best is None else min(self._best, recent)

    def _recent(self) -> float:
        return statistics.median(list(self._windows)[-_IN_A_ROW:])

    def _reason(self, steps: float, now: float) -> str | None:
        settled = self._settled
        if not self._healthy and (settled or (not steps and now - self._began >= _WITHOUT_STEPS)):
            self._healthy, self._scheduled = True, now
            return HEALTHY
        if self._options.every is not None and now - self._scheduled >= self._options.every:
            self._scheduled = now
            return SCHEDULE
        if self.may_trigger(now):
            reason = SLOW if self._is_slow() else BELOW if self._is_below() else None
            if reason is not None:
                self.triggered(now)
            return reason
        return None

    def may_trigger(self, now: float) -> bool:
        """Whether there is a healthy trace to compare with, and the pause after the last trigger is over."""
        return self._settled and self._healthy and now - self._triggered >= self._options.cooldown

    def triggered(self, now: float) -> None:
        """Something about the training is a reason for a trace: the pause begins."""
        self._triggered = now

    @property
    def _settled(self) -> bool:
        return len(self._windows) >= _SETTLED

    def _is_slow(self) -> bool:
        before, last = list(self._windows)[:-_IN_A_ROW], list(self._windows)[-_IN_A_ROW:]
        if not self._options.slow_steps or len(before) < _IN_A_ROW:
            return False
        middle = statistics.median(before)
        deviation = statistics.median(abs(window - middle) for window in before)
        return min(last) > middle + _DEVIATIONS * max(deviation, _LEAST_DEVIATION * middle)

    def _is_below(self) -> bool:
        share = self._options.below_best
        return share is not None and self._best is not None and self._best < (1 - share) * self._recent()
