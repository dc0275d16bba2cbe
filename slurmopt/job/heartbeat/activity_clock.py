"""Measures what a process spends its time on: seconds of each activity, of which exactly one lasts at any time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

STARTING, RUNNING, FIRST_STEP = "starting", "running", "first step"
INPUT, CHECKPOINT, SAVING, ENDED = "input", "checkpoint", "saving", "ended"
OTHERS = "other phases"
"""Where the time of further names goes, once there are `MOST_NAMES`."""
_OURS = frozenset(
    {
        STARTING,
        "checking",
        "staging",
        "importing",
        "waiting",
        FIRST_STEP,
        "compiling",
        RUNNING,
        INPUT,
        CHECKPOINT,
        "restoring",
        SAVING,
        ENDED,
    }
)
MOST_NAMES = 32
LONGEST_NAME = 64
_LOOKS = 10
"""How often a reader looks again because an activity has ended meanwhile. The interpreter changes threads each 5 ms, so
a second look is rare."""


class ActivityClock:
    """Seconds by activity since the process became part of the attempt, by the monotonic clock.

    `begin` and `resume` nest: what is begun inside another activity takes the time from it, and resuming the outer one
    gives it back. They are called by the training's thread alone, and hold no lock: a process that is forked meanwhile
    can use its copy. `spent` is called by any thread.
    """

    def __init__(self, activity: str, now: Callable[[], float] = time.monotonic) -> None:
        """Begins with `activity`."""
        self._now = now
        self._started = self._since = now()
        self._seconds = {activity: 0.0}
        self.activity = activity
        """What the process does now."""
        self.has_stepped = False
        self._thread = threading.get_ident()

    @property
    def age(self) -> float:
        """Seconds since the clock was made."""
        return self._now() - self._started

    def enter(self, activity: str) -> None:
        """Begins an activity that no other is around, such as the next phase of a rank."""
        self._switch(FIRST_STEP if activity == RUNNING and not self.has_stepped else self._name(activity))

    def begin(self, activity: str) -> str | None:
        """Begins an activity inside the present one, which it returns for `resume`. None in a thread that is not the
        training's: there nothing is measured, for the training goes on meanwhile."""
        if threading.get_ident() != self._thread:
            return None
        outer = self.activity
        self._switch(self._name(activity))
        return outer

    def begin_input(self) -> str | None:
        """`begin` of waiting for the loader; faster, because this happens twice in each step."""
        if threading.get_ident() != self._thread:
            return None
        outer = self.activity
        self._switch(INPUT)
        return outer

    def resume(self, outer: str | None) -> None:
        """Goes on with what `begin` has returned."""
        if outer is not None:
            self._switch(RUNNING if outer == FIRST_STEP and self.has_stepped else outer)

    def stepped(self) -> None:
        """Notes a step of this process. The thread that calls it is the training's."""
        self._thread = threading.get_ident()
        if not self.has_stepped:
            self.end_first_step()

    def end_first_step(self) -> None:
        """Notes that there was a step, which ends the activity `first step`."""
        if not self.has_stepped:
            self.has_stepped = True
            if self.activity == FIRST_STEP:
                self._switch(RUNNING)

    def had_no_steps(self) -> None:
        """Counts what was taken for the time until the first step as `running`: it turned out that there are none."""
        self._seconds[RUNNING] = self._seconds.get(RUNNING, 0.0) + self._seconds.pop(FIRST_STEP, 0.0)

    def spent(self) -> dict[str, float]:
        """Activity → seconds; they sum to `age` at the moment of the call."""
        # The training's thread may be in the midst of a switch. With the activity read first, the seconds of all others
        # are complete, and what they leave of the age belongs to it, unless a switch passes before the age is read.
        for _ in range(_LOOKS):
            since, activity = self._since, self.activity
            seconds, age = dict(self._seconds), self.age
            if self._since == since and self.activity == activity:
                break
        seconds.pop(activity, None)
        seconds[activity] = max(0.0, age - sum(seconds.values()))
        return {name: value for name, value in seconds.items() if value > 0}

    def _switch(self, activity: str) -> None:
        now = self._now()
        elapsed, self._since = (
            now - self._since,
            now,
        )  # first: a signal handler may switch too, and counts nothing twice
        self._seconds[self.activity] += elapsed
        if activity not in self._seconds:
            self._seconds[activity] = 0.0
        self.activity = activity  # last: see `spent`

    def _name(self, activity: str) -> str:
        """The name under which an activity is counted: a training may make up phases without end."""
        name = activity[:LONGEST_NAME]
        if name in self._seconds or name in _OURS:
            return name
        own = sum(each not in _OURS for each in self._seconds)
        return name if own < MOST_NAMES - len(_OURS) - 1 else OTHERS
