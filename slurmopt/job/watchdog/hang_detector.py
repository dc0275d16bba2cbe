"""Decides from heartbeats, as another node sees them change, whether the ranks hang.

Times are seconds of the observer's own: nothing is reckoned between the clocks of two nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from slurmopt.job.watchdog.stacks import SHORTEST
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.heartbeat_silence import silent_after

FIRST_STEP = 1800.0
"""Seconds that the first step of an attempt (downloads, compilation) and named phases may take with `auto`."""
_TIMES_THE_SLOWEST = 20.0
_TIMES_THE_FIRST = 3.0
"""A recompilation takes about as long as the first step."""
_AFTER_THE_COLLECTIVE = 60.0
"""Seconds. NCCL's watchdog makes every rank write its flight recorder before it aborts."""
_STACKS_BEFORE = 0.9
"""Part of a collective's timeout after which the stacks are requested; after the timeout no rank can write them."""
_PHASES = ("starting", "checking", "staging", "importing", "waiting", "restoring", "running", "saving", "ended")
"""In the order of an attempt: the rank that is furthest behind has stopped first."""


@dataclass(frozen=True)
class Allowance:
    """How long ranks may make no progress, in seconds. `hang_after` is restart.hang_after, None for auto; `deadline`
    checkpoint.deadline; `heartbeat` and `interval` the time between two heartbeats and between two readings of them;
    `collective` network.timeout; `slowest` and `first` the slowest and the first step so far. `hangs` counts the
    attempts in a row before this one that hung."""

    hang_after: float | None
    deadline: float
    heartbeat: float
    interval: float
    collective: float = 0.0
    slowest: float = 0.0
    first: float = 0.0
    hangs: int = 0
    is_traced: bool = False
    """Whether traces are being made: the profiler may stop the training while it writes one."""

    @property
    def quiet(self) -> float:
        """The time without a heartbeat after which a rank counts as silent."""
        return silent_after(self.heartbeat, delay=self.interval)

    @property
    def steps(self) -> float:
        """The time allowed between two steps of the attempt, and between two heartbeats of a rank."""
        between = max(self._learned if self.hang_after is None else self.hang_after, self.quiet)
        return max(between, self.patience) if self.is_traced else between

    @property
    def _learned(self) -> float:
        """The allowance with `auto`. It doubles after each hang, which may have been a slow step."""
        slowest = max(_TIMES_THE_SLOWEST * self.slowest, _TIMES_THE_FIRST * self.first)
        return max(SHORTEST, self.collective + _AFTER_THE_COLLECTIVE, slowest) * float(1 << self.hangs)

    @property
    def patience(self) -> float:
        """The allowance before the first step is done, and in phases whose length is unrelated to that of a step."""
        configured = max(FIRST_STEP, self._learned) if self.hang_after is None else max(SHORTEST, self.hang_after)
        return max(configured, self.deadline, self.quiet)

    @property
    def before_the_collective(self) -> Allowance | None:
        """The allowance after which the collective's own timeout is about to end the ranks; None if this allowance is
        shorter."""
        if self.hang_after is not None or not self.collective:
            return None
        return replace(self, hang_after=_STACKS_BEFORE * self.collective, is_traced=False)


@dataclass
class Seen:
    """The last known state of a rank."""

    rank: int
    node: str | None = None
    pid: int = 0
    step: int | None = None
    step_time: float | None = None
    first_step: int | None = None
    total_steps: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    phase: str = "starting"
    active: int = 0
    time: float | None = None
    """The time in its heartbeat, by its own clock. Only changes count."""
    moved_bytes: int = 0
    awaits: str | None = None
    """What the rank waits for before its task; it changes with each check of that."""
    moved: float = 0.0
    """When a change of its step, metrics, phase or transferred bytes was last seen."""
    worked: float = 0.0
    """When activity of its GPU or its files was last seen."""
    beaten: float = 0.0
    """When a change of its heartbeat was last seen."""
    beats: int = 0

    @property
    def ended(self) -> bool:
        return self.phase == "ended"

    @property
    def has_stepped(self) -> bool:
        """Whether it has made a whole step: the first report may come before the first step, or after a restore."""
        return self.step is not None and self.step != self.first_step

    @property
    def has_done_all(self) -> bool:
        """Whether it has made all its steps. What follows (an evaluation, an export) has another length than a step."""
        return self.step is not None and self.total_steps is not None and self.step >= self.total_steps

    def take(self, beat: Heartbeat, now: float) -> bool:
        """Updates the state from a heartbeat; returns whether the step has changed."""
        stepped = beat.step is not None and beat.step != self.step
        before = self.phase, self.metrics, self.moved_bytes, self.awaits
        if stepped or (beat.phase, beat.metrics, beat.moved_bytes, beat.awaits) != before:
            self.moved = now
        if beat.active != self.active:
            self.worked = now
        if beat.time != self.time:
            self.beaten, self.beats = now, self.beats + 1
        self.node, self.pid, self.time = beat.node, beat.pid, beat.time
        self.step, self.step_time, self.total_steps = beat.step, beat.step_time, beat.total_steps
        self.first_step, self.phase, self.metrics, self.active = beat.first_step, beat.phase, beat.metrics, beat.active
        self.moved_bytes, self.awaits = beat.moved_bytes, beat.awaits
        return stepped


@dataclass(frozen=True)
class Hang:
    """A hang. `rank` stopped first, `seconds` ago; `silent` ranks send no heartbeats. `alike`: how many ranks are in
    the phase and at the step of `rank`; of several it is not known which stopped first."""

    rank: int
    node: str | None
    step: int | None
    phase: str
    seconds: float
    silent: list[int]
    alike: int = 1


@dataclass
class Ranks:
    """All ranks of an attempt. `steps_expected`: an earlier attempt of the run reported steps."""

    count: int
    steps_expected: bool = False
    slowest: float = 0.0
    first: float = 0.0
    seen: dict[int, Seen] = field(default_factory=dict)
    _stepped: float | None = None
    _looked: float = 0.0

    def __post_init__(self) -> None:
        self.seen = {rank: Seen(rank) for rank in range(self.count)}

    def take(self, beats: Mapping[int, Heartbeat], now: float) -> None:
        """Updates the ranks from the heartbeats read at `now`."""
        before = max(rank.moved for rank in self.seen.values())
        stepped = [self.seen[rank].take(beat, now) for rank, beat in beats.items() if rank in self.seen]
        if any(stepped):
            # Only what was seen to stand still counts: how long a look came late has nothing to do with the step.
            if self._stepped is None:
                self.first = max(self.first, self._looked - before)
            else:
                self.slowest = max(self.slowest, self._looked - self._stepped)
        if any(stepped) and self._have_stepped():
            self._stepped = now
        self._looked = now

    def _have_stepped(self) -> bool:
        return any(rank.has_stepped for rank in self.seen.values())

    def start_afresh(self, now: float) -> None:
        """Restarts all times, because no rank could write its heartbeat before `now`."""
        for rank in self.seen.values():
            rank.moved = rank.worked = rank.beaten = now

    def silent(self, allowed: Allowance, now: float) -> list[Seen]:
        """The ranks without heartbeats, the longest silence first."""
        silent_ranks = [rank for rank in self.seen.values() if not rank.ended and now - rank.beaten >= allowed.quiet]
        return sorted(silent_ranks, key=lambda rank: (rank.beaten, rank.rank))

    def unclear(self, since: float, allowed: Allowance, now: float) -> bool:
        """Whether it is still unknown of some rank if it sends heartbeats or has been silent since before `since`."""
        last = [rank.beaten for rank in self.seen.values() if not rank.ended]
        return any(beaten <= since and now - beaten < allowed.quiet for beaten in last)

    def hang(self, allowed: Allowance, now: float) -> Hang | None:
        """The hang, if the ranks hang."""
        live = [rank for rank in self.seen.values() if not rank.ended] or list(self.seen.values())
        since = max(rank.moved for rank in live)
        if allowed.hang_after is None:  # who names a time counts steps alone
            since = max(since, *(rank.worked for rank in live))
        silent = self.silent(allowed, now)
        if now - since < self._allowance(live, allowed) and not any(self._is_lost(one, allowed, now) for one in silent):
            return None
        first = silent[0] if silent else min(live, key=_how_far)
        seconds = now - (first.beaten if silent else since)
        alike = 1 if silent else sum(_how_far(rank)[:2] == _how_far(first)[:2] for rank in live)
        return Hang(first.rank, first.node, first.step, first.phase, seconds, [rank.rank for rank in silent], alike)

    def _is_lost(self, rank: Seen, allowed: Allowance, now: float) -> bool:
        return now - rank.beaten >= (allowed.patience if rank.time is None else allowed.steps)

    def _allowance(self, live: list[Seen], allowed: Allowance) -> float:
        """How long the ranks together may make no progress: the longest allowance of any rank."""
        report = any(rank.step is not None for rank in live)
        return max(self._of_one(rank, report, allowed) for rank in live)

    def _of_one(self, rank: Seen, report: bool, allowed: Allowance) -> float:
        if rank.phase != "running" or rank.has_done_all or (report and not self._have_stepped()):
            return allowed.patience
        if report:  # one that reports no steps beside others that do says nothing by that
            return 0.0 if rank.step is None else allowed.steps
        return allowed.patience if self.steps_expected else math.inf


def _how_far(rank: Seen) -> tuple[float, ...]:
    """Sort key: the rank that is furthest behind stopped first."""
    phase = _PHASES.index(rank.phase) if rank.phase in _PHASES else _PHASES.index("running")
    step, since = (math.inf if value is None else value for value in (rank.step, rank.step_time))
    return phase, step, since, rank.rank
