"""The save interval of one tier: a number of steps, a time, or auto (Daly's formula with measured values)."""

from __future__ import annotations

import math
from collections import deque
from statistics import median

from slurmopt.planning.interruptions import daly
from slurmopt.units import human_seconds, steps_or_seconds

_FIRST_STEPS, _FIRST_SECONDS = 10, 30.0
"""When auto saves first, whichever is later: the first steps are slow and not representative."""
_REMEMBERED = 5
"""Saves of which the median is used, so that one slow save does not change the interval."""


class Interval:
    """Computes the next step to save, for one tier.

    It is deterministic, but measurements differ between ranks; so rank 0 computes and broadcasts. All times are seconds
    of a monotonic clock.
    """

    def __init__(self, every: int | str, mtbf_seconds: float) -> None:
        """`every`: a number of steps, a time such as "10min", or auto.

        Raises ValueError, which names the valid forms, for anything else and for an `mtbf_seconds` of 0 or less.
        """
        if not mtbf_seconds > 0:
            raise ValueError(f"not a mean time between failures: {mtbf_seconds!r}; valid is more than 0 seconds")
        self._kind, self._every = steps_or_seconds(every)
        self._text = str(every).strip()
        self._mtbf = mtbf_seconds
        self._blocked: deque[float] = deque(maxlen=_REMEMBERED)
        self._durable: deque[float] = deque(maxlen=_REMEMBERED)
        self._since: tuple[int, float | None] | None = None  # the step and time of the last save
        self._why = f"every {self._text}" if self._kind == "seconds" else "soon, to measure what a save costs"

    def saved(self, step: int, now: float, blocked: float, durable: float | None = None) -> None:
        """Records that a snapshot of `step` was taken at `now` and blocked the training for `blocked` seconds.

        `durable`: the argument of `became_durable`, where it is known already. Call this also for a save that fails
        later, or the next step is due again.
        """
        self._since = (step, now)
        if math.isfinite(blocked):
            self._blocked.append(max(0.0, blocked))
        if durable is not None:
            self.became_durable(durable)

    def became_durable(self, after: float) -> None:
        """Records that a save became durable `after` seconds after its snapshot began."""
        if math.isfinite(after):
            self._durable.append(max(0.0, after))

    def next_step(self, step: int, seconds_per_step: float, now: float | None = None) -> int:
        """The next step to save, always later than `step`, the last one done.

        Call it again at any time, at the latest at the step returned, since the result depends on measurements. A
        number of steps means its multiples, wherever the run resumed. With `now`, time outside of steps counts too,
        such as an evaluation; without it, time is steps times `seconds_per_step`. A pace of 0 or NaN is unknown: then
        the result is 10 steps later.
        """
        if self._kind == "steps":
            return (step // self._every + 1) * self._every
        if self._since is None or step < self._since[0]:  # the start, or a rollback
            self._since = (step, now)
        wanted, at_least, reason = self._wanted()
        span = max(at_least, _steps(wanted, seconds_per_step))
        self._why = f"{self._words(span, wanted, seconds_per_step)}: {reason}"
        since, start = self._since
        due = since + span
        if now is not None and start is not None and seconds_per_step > 0:
            due = max(since + at_least, step + _steps(wanted - max(0.0, now - start), seconds_per_step))
        return max(step + 1, due)

    def why(self) -> str:
        """The interval and its reason, as of the last `next_step`, in one line."""
        if self._kind == "steps":
            return f"{_count(self._every)}: as configured"
        return self._why

    def _wanted(self) -> tuple[float, int, str]:
        """Seconds between two saves, the minimum of steps, and the reason."""
        if self._kind == "seconds":
            return self._every, 1, f"{self._text}, as configured"
        if not self._blocked:
            return _FIRST_SECONDS, _FIRST_STEPS, "the first one, to measure what a save costs"
        blocked, durable = median(self._blocked), median(self._durable or [0.0])
        best = daly(blocked, self._mtbf)
        failure = f"a failure each {human_seconds(self._mtbf)}"
        if durable > best:
            words = f"no sooner than the last is durable; Daly asks for {_short(best)} with {_short(blocked)} blocked"
            return durable, 1, f"{words}, {failure}"
        until = f"{_short(durable)} until durable" if self._durable else "none durable yet"
        return best, 1, f"Daly with {_short(blocked)} blocked, {until}, {failure}"

    def _words(self, span: int, wanted: float, pace: float) -> str:
        if not pace > 0:
            return f"after {span:,} steps, the pace of which is not known yet"
        measuring = self._kind == "auto" and not self._blocked
        took = human_seconds(span * pace) if pace < math.inf else human_seconds(wanted)
        return f"{f'after {span:,} steps' if measuring else _count(span)} ({took})"


def _steps(time: float, pace: float) -> int:
    """The number of steps of `pace` seconds in `time`, at least one; a pace below a microsecond counts as one."""
    if not pace > 0:
        return _FIRST_STEPS
    return max(1, math.ceil(time / max(pace, 1e-6)))


def _count(steps: int) -> str:
    return "every step" if steps == 1 else f"every {steps:,} steps"


def _short(time: float) -> str:
    return f"{time:.2g} s" if time < 10 else human_seconds(time)
