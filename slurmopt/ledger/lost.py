"""Finds the steps of an attempt that a later attempt did again, and when the attempt began to do them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from slurmopt.ledger.record import AttemptRecord, RankRecord

FROM_THE_FIRST_STEP = float("-inf")
_MOST_RANKS = 64
"""Ranks that are asked when a step was done: they make their steps together."""


def base_step(attempt: AttemptRecord) -> int | None:
    """The step that an attempt continued from: the one it restored, else the one before its first; None where it made
    no step and restored nothing."""
    if attempt.restored_step is not None:
        return attempt.restored_step
    firsts = [rank.first_step for rank in attempt.ranks if rank.first_step is not None]
    return max(0, min(firsts) - 1) if firsts else None


def last_step(attempt: AttemptRecord) -> int | None:
    """The last step that a rank reported."""
    return max((rank.step for rank in attempt.ranks if rank.step is not None), default=None)


def kept_steps(attempts: Sequence[AttemptRecord]) -> list[int | None]:
    """For each attempt, the least step that a later attempt continued from: its own later steps were done again. None
    where no later attempt tells."""
    found: list[int | None] = []
    least: int | None = None
    for attempt in reversed(attempts):
        found.append(least)
        base = base_step(attempt)
        if base is not None:
            least = base if least is None else min(least, base)
    return found[::-1]


def lost_since(attempt: AttemptRecord, kept: int | None) -> float | None:
    """When the attempt had done the step `kept`, so that what it did then is lost. None where nothing is lost or that
    cannot be told; FROM_THE_FIRST_STEP where all of its steps are."""
    last = last_step(attempt)
    if kept is None or last is None or kept >= last:
        return None
    base = base_step(attempt)
    if base is not None and kept <= base:
        return FROM_THE_FIRST_STEP
    if kept == attempt.durable_step and attempt.durable_since is not None:
        return min(max(attempt.durable_since, attempt.start), attempt.end)
    times = [_when_done(rank, kept) for rank in _some(attempt.ranks)]
    known = [time for time in times if time is not None]
    return median(known) if known else None


def _some(ranks: Sequence[RankRecord]) -> Iterable[RankRecord]:
    with_steps = [rank for rank in ranks if rank.step is not None]
    with_steps = [rank for rank in with_steps if rank.samples] or with_steps  # they know more
    return with_steps[:: max(1, len(with_steps) // _MOST_RANKS)]


def _when_done(rank: RankRecord, step: int) -> float | None:
    """When a rank had done a step: between two of its reports, in proportion to the steps."""
    reports = [(sample.time, sample.step) for sample in rank.samples if sample.step is not None]
    if rank.first_step is not None and rank.first_step_time is not None:
        reports.append((rank.first_step_time, rank.first_step))
    reports.append((rank.step_time or rank.seen, rank.step or 0))
    before = max((report for report in reports if report[1] <= step), key=lambda report: report[1], default=None)
    after = min((report for report in reports if report[1] > step), key=lambda report: report[1], default=None)
    if after is None:
        return None
    if before is None:
        before = (rank.started, min(rank.first_step or 0, step))
    share = (step - before[1]) / (after[1] - before[1])
    return before[0] + share * max(0.0, after[0] - before[0])
