"""A training that saves and restarts, replayed over the uptimes of a trace. All times in seconds.

It begins as soon as all of its instances can be had, starts up, and then trains and saves in turn. Where one instance
goes, the gang stops, the others are given back, and what was trained since the last safe save is lost. The notice of a
spot market is not counted on: it is best effort.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from statistics import fmean

from slurmopt.planning.interruptions import daly, expected_seconds
from slurmopt.planning.right_size import quantile
from slurmopt.planning.spot.trace import Uptimes, starting_points

STARTS = 200
"""Starting points over the trace, at most."""
_FEWEST_STARTS = 20
_MOST_STEPS = 4_000_000
"""Uptimes that a search looks at; of a trace with more there are fewer starting points."""
FREE = 3600.0
"""Within so many seconds of its start an instance that the cloud takes back costs nothing; what the user gives back is
billed by the second from the first one on (AWS, "Billing for interrupted Spot Instances")."""
_FACTORS = tuple(2.0 ** (half / 2) for half in range(-6, 7))
"""The intervals that are tried, in terms of Daly's."""
_CLOSE = 1e-9


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training."""

    work: float
    """Of training in all."""
    blocked: float
    """What a save blocks the training for."""
    restart: float
    """From the instances to the first new step, in each start, the first one too."""
    drain: float = 0.0
    """From the end of `blocked` until a save in the background is safe."""

    def saves(self, work: float, interval: float) -> int:
        """Of so much training, the last one at its end."""
        return max(1, math.ceil(work / interval - _CLOSE))

    def undisturbed(self, interval: float) -> float:
        """From the instances to the last safe save, where nothing interrupts."""
        return self.restart + self.work + self.saves(self.work, interval) * self.blocked + self.drain


@dataclass(frozen=True)
class Tally:
    """What a time of a run comes to. Instance-seconds are over the whole gang."""

    interruptions: float = 0
    lost: float = 0.0
    """Seconds of training that are done again."""
    billed: float = 0.0
    """Instance-seconds."""
    free: float = 0.0
    """Instance-seconds that were taken back within the first hour, and cost nothing."""

    def plus(self, other: Tally, times: int = 1) -> Tally:
        return Tally(
            self.interruptions + times * other.interruptions,
            self.lost + times * other.lost,
            self.billed + times * other.billed,
            self.free + times * other.free,
        )


@dataclass(frozen=True)
class Finish:
    """A run from one starting point."""

    seconds: float
    """From the starting point until the last save is safe, with all waiting."""
    tally: Tally


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """The runs of one interval, over all starting points."""

    interval: float
    mean: float
    p50: float
    p90: float
    tally: Tally
    """The means."""


class Replay:
    """Runs of a training with one interval between saves."""

    def __init__(self, uptimes: Uptimes, job: Job, interval: float, free: float = FREE) -> None:
        self._uptimes, self._job, self._interval, self._free = uptimes, job, interval, free
        self._longest = max(one.seconds for one in uptimes.each)
        self._kept, self._round = 0.0, Tally()
        if not uptimes.always:
            for one in uptimes.each:
                kept, tally = self._interrupted(job.work, one.seconds, one.left)
                self._kept, self._round = self._kept + kept, self._round.plus(tally)

    def run(self, begin: float) -> Finish | None:
        """The run that asks for its instances at `begin` of the trace; None where it never finishes."""
        uptimes, left, tally = self._uptimes, self._job.work, Tally()
        index, rounds = uptimes.at(begin)
        while True:
            if index == len(uptimes.each):
                index, skipped = 0, self._skipped(left)
                if skipped is None:
                    return None
                rounds += 1 + skipped
                left, tally = left - skipped * self._kept, tally.plus(self._round, skipped)
            one = uptimes.each[index]
            start = max(begin, one.start + rounds * uptimes.length)
            seconds = one.start + one.seconds + rounds * uptimes.length - start
            needed = self._needed(left)
            if needed <= seconds + _CLOSE:
                return Finish((start - begin) + needed, tally.plus(Tally(billed=needed * uptimes.nodes)))
            kept, part = self._interrupted(left, seconds, one.left)
            left, tally, index = left - kept, tally.plus(part), index + 1

    def _needed(self, left: float) -> float:
        job = self._job
        return job.restart + left + job.saves(left, self._interval) * job.blocked + job.drain

    def _skipped(self, left: float) -> int | None:
        """Whole rounds in which it cannot finish; None where it never does."""
        if self._kept <= 0:
            return 0 if self._needed(left) <= self._longest + _CLOSE else None
        return max(0, math.floor((left - self._longest) / self._kept))

    def _interrupted(self, left: float, seconds: float, remaining: int) -> tuple[float, Tally]:
        """What is kept of the training of an uptime that ends too early, and what it comes to."""
        job, each = self._job, self._interval + self._job.blocked
        active = max(0.0, seconds - job.restart)
        kept = max(0, math.floor((active - job.drain) / each + _CLOSE)) * self._interval
        whole = math.floor(active / each + _CLOSE)
        trained = min(left, whole * self._interval + min(self._interval, max(0.0, active - whole * each)))
        taken = self._uptimes.nodes - remaining
        free = taken * seconds if seconds < self._free else 0.0
        billed = self._uptimes.nodes * seconds - free
        return kept, Tally(interruptions=1, lost=max(0.0, trained - kept), billed=billed, free=free)


def outlook(
    uptimes: Uptimes, job: Job, interval: float, free: float = FREE, starts: int | None = None
) -> Outlook | None:
    """The runs from starting points spread over the trace; None where they never finish."""
    replay = Replay(uptimes, job, interval, free)
    found = []
    for begin in starting_points(uptimes.length, starts or count_of_starts(uptimes)):
        if (one := replay.run(begin)) is None:
            return None
        found.append(one)
    seconds = [one.seconds for one in found]
    columns = zip(*(astuple(one.tally) for one in found), strict=True)
    tally = Tally(*(fmean(column) for column in columns))
    return Outlook(
        interval=interval, mean=fmean(seconds), p50=quantile(seconds, 0.5), p90=quantile(seconds, 0.9), tally=tally
    )


def count_of_starts(uptimes: Uptimes) -> int:
    """How many starting points a search takes."""
    return max(_FEWEST_STARTS, min(STARTS, _MOST_STEPS // (len(uptimes.each) * (len(_FACTORS) + 2))))


def intervals(uptimes: Uptimes, job: Job) -> list[float]:
    """Those that a search tries: Daly's, an eighth to eight times that, and one save at the end."""
    if uptimes.always:
        return [job.work]
    best = daly_interval(uptimes, job)
    return [*{min(job.work, best * factor) for factor in _FACTORS} | {job.work}]


def daly_interval(uptimes: Uptimes, job: Job) -> float:
    """Daly's, for M as the mean of the uptimes; at most the whole work."""
    return min(job.work, daly(job.blocked, uptimes.mean))


def best_of(outlooks: Sequence[Outlook]) -> Outlook:
    """The one with the least mean time; of equals the one with fewer saves."""
    return min(outlooks, key=lambda one: (one.mean, -one.interval))


def exponential_seconds(uptimes: Uptimes, job: Job, interval: float) -> float:
    """The expected time if uptimes were exponential with the mean of the trace: Daly's expected time of the training,
    by the share of the time in which the gang can run at all, since nothing fails while it waits for instances."""
    running = expected_seconds(job.work, interval, job.blocked, job.restart, uptimes.mean, job.drain)
    return running / uptimes.available
