"""Divides the time of one rank in an attempt into buckets, from what the rank measured with its monotonic clock.

The attempt's time, from its start to its end, is divided into pieces in order:

    before the rank started                          start-up
    what the rank spent until its last report        by activity: see `slurmopt.ledger.buckets.OF_ACTIVITY`
    time that the rank does not account for          unknown
    after its last report                            winding down, if it reported its end; stalled, after a hang; what
                                                     it was doing, while it runs and reports; else unknown

Lengths come from the rank's monotonic clock, and only the place of the first piece from wall clocks: a clock that jumps
can move time from start-up to the tail, and can neither make time nor lose any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slurmopt.ledger import buckets
from slurmopt.ledger.record import HANG, AttemptRecord, RankRecord, Sample
from slurmopt.run_folder.time_spent import exposed_communication

_BEFORE = ("starting", "checking", "staging", "importing", "waiting", "restoring", "first step")
_AFTER = ("saving", "ended")
PRODUCTIVE = frozenset(
    {buckets.COMPUTE, buckets.COMMUNICATION, buckets.INPUT, buckets.CHECKPOINT, buckets.PHASES, buckets.FIRST_STEPS}
)
"""What is lost where steps are done again."""
MAY_STALL = PRODUCTIVE | {buckets.STARTUP, buckets.HEALTH, buckets.STAGING, buckets.RENDEZVOUS, buckets.RESTORE}
"""What a hang may have stopped."""
SILENCE = 120.0
"""Seconds without a report after which nobody knows what a rank does."""
_LONGEST = 1e10
"""Seconds; no rank spends more in an activity."""
_ROUNDING, _DRIFT = 2.0, 0.01
"""Seconds, and share of a rank's age, by which its wall clock may differ from its monotonic clock."""


@dataclass
class Piece:
    """A part of the time of a rank. The seconds of `spent` sum to its length."""

    start: float
    end: float
    spent: dict[str, float]
    """Bucket → seconds."""

    def split(self, at: float) -> list[Piece]:
        """The piece before `at`, and the one after it, with the same mix; the piece itself where `at` is outside."""
        length = self.end - self.start
        if length <= 0 or not self.start < at < self.end:
            return [self]
        share = (at - self.start) / length
        before = {bucket: seconds * share for bucket, seconds in self.spent.items()}
        after = {bucket: seconds - before[bucket] for bucket, seconds in self.spent.items()}
        return [Piece(self.start, at, before), Piece(at, self.end, after)]

    def take(self, share: float, movable: Iterable[str], to: str) -> None:
        """Gives a share of the seconds of some buckets to the bucket `to`."""
        for bucket in movable:
            if bucket in self.spent and bucket != to:
                moved = self.spent[bucket] * min(1.0, share)
                self.spent[bucket] -= moved
                self.spent[to] = self.spent.get(to, 0.0) + moved


def move(parts: list[Piece], since: float, movable: Iterable[str], to: str) -> list[Piece]:
    """The pieces, with the seconds of some buckets after `since` in the bucket `to`."""
    found = [piece for whole in parts for piece in whole.split(since)]
    for piece in found:
        if piece.start >= since:
            piece.take(1.0, movable, to)
    return found


def pieces(rank: RankRecord, attempt: AttemptRecord, in_detail: bool = False) -> list[Piece]:
    """The time of a rank from the attempt's start to its end. `in_detail`: in the order in which it was spent, from the
    rank's samples, else from the usual order of activities."""
    start, end = attempt.start, max(attempt.start, attempt.end)
    spent = {activity: min(seconds, _LONGEST) for activity, seconds in rank.spent.items() if seconds > 0}
    age = sum(spent.values())
    body = min(age, end - start)
    begun = min(max(rank.started, start), end - body)
    reported, until = min(max(rank.seen, start), end), begun + body
    if age and until < reported <= until + max(_ROUNDING, _DRIFT * age):
        until = reported
    parts = [Piece(start, begun, {buckets.STARTUP: begun - start})]
    parts += _of_body(rank, spent, begun, until, in_detail)
    if reported > until:
        parts.append(Piece(until, reported, {buckets.UNKNOWN: reported - until}))
        until = reported
    parts.append(Piece(until, end, {_tail(rank, attempt, end - until): end - until}))
    _split_communication(parts, rank)
    return _with_stalled(parts, attempt, until)


def _of_body(rank: RankRecord, spent: dict[str, float], begun: float, until: float, in_detail: bool) -> Iterator[Piece]:
    """What the rank spent, scaled to the time from `begun` to `until`."""
    age = sum(spent.values())
    if not age:
        return
    scale = (until - begun) / age
    at = begun
    for part in _in_order(rank, spent) if in_detail else [spent]:
        length = sum(part.values()) * scale
        yield Piece(at, at + length, _by_bucket(part, scale))
        at += length


def _by_bucket(spent: dict[str, float], scale: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for activity, seconds in spent.items():
        bucket = buckets.bucket_of(activity)
        found[bucket] = found.get(bucket, 0.0) + seconds * scale
    return found


def _in_order(rank: RankRecord, spent: dict[str, float]) -> list[dict[str, float]]:
    """What was spent, in parts that followed each other."""
    reports = [*_rising(rank.samples, spent), spent]
    parts, before = [], {}  # type: list[dict[str, float]], dict[str, float]
    for report in reports:
        part = {name: seconds - before.get(name, 0.0) for name, seconds in report.items()}
        parts += _usual_order({name: seconds for name, seconds in part.items() if seconds > 0})
        before = report
    return parts


def _rising(samples: Iterable[Sample], spent: dict[str, float]) -> Iterator[dict[str, float]]:
    """The reports of which each has at least as much of every activity as the one before, and at most `spent`."""
    before: dict[str, float] = {}
    for sample in samples:
        found = sample.spent
        rises = all(found.get(name, 0.0) >= seconds for name, seconds in before.items())
        if rises and all(0 <= seconds <= spent.get(name, 0.0) for name, seconds in found.items()):
            yield found
            before = found


def _usual_order(spent: dict[str, float]) -> list[dict[str, float]]:
    middle = {name: seconds for name, seconds in spent.items() if name not in _BEFORE + _AFTER}
    ordered = [{name: spent[name]} for name in _BEFORE if name in spent]
    return [*ordered, *([middle] if middle else []), *({name: spent[name]} for name in _AFTER if name in spent)]


def _tail(rank: RankRecord, attempt: AttemptRecord, seconds: float) -> str:
    """The bucket of the time after the last report."""
    if rank.ended:
        return buckets.WIND_DOWN
    if attempt.alive and rank.activity is not None and seconds <= SILENCE:
        return buckets.bucket_of(rank.activity)
    return buckets.STALLED if attempt.cause == HANG and rank.spent else buckets.UNKNOWN


def _split_communication(parts: list[Piece], rank: RankRecord) -> None:
    exposed, compute = (
        exposed_communication(rank.counted),
        sum(piece.spent.get(buckets.COMPUTE, 0.0) for piece in parts),
    )
    if exposed > 0 and compute > 0:
        for piece in parts:
            piece.take(exposed / compute, (buckets.COMPUTE,), buckets.COMMUNICATION)


def _with_stalled(parts: list[Piece], attempt: AttemptRecord, seen: float) -> list[Piece]:
    if attempt.stalled_seconds <= 0 or attempt.cause != HANG:
        return parts
    since = seen - attempt.stalled_seconds if attempt.stalled_since is None else attempt.stalled_since
    return move(parts, since, MAY_STALL, buckets.STALLED)
