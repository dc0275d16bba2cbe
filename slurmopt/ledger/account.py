"""Computes the ledger of a run: every allocated GPU-second in exactly one bucket.

Of each attempt and node: gpus x (end - start), in integer GPU-milliseconds, is divided among the ranks of the node by
the GPUs that they use; what they leave is `held by no rank`. The share of a rank is divided among the buckets by the
time that it spent in each: see `slurmopt.ledger.rank_time`. Both divisions are exact, so the buckets sum to what was
allocated, whatever the records say.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurmopt.ledger import buckets
from slurmopt.ledger.apportion import apportion, apportioned
from slurmopt.ledger.ledger import Account, AttemptLedger, Ledger
from slurmopt.ledger.lost import kept_steps, last_step, lost_since
from slurmopt.ledger.rank_time import PRODUCTIVE, move, pieces
from slurmopt.ledger.record import FINISHED, AttemptRecord, RankRecord
from slurmopt.ledger.slowest import slowest_rank

_LATEST = 1e11
"""Seconds since the epoch; no clock shows more."""
_INSTANT = 1e-6
"""A weight for what a rank has just begun to do."""
_MOST_UNITS = 1e6
"""GPUs or CPUs of a node."""


def account(attempts: Sequence[AttemptRecord]) -> Ledger:
    """The ledger of the attempts of one run, oldest first.

    Attempts without GPUs are counted in CPU-time. Where some attempts had GPUs and others had none, the ledger counts
    those with GPUs, and a note says so.
    """
    unit = "GPU" if not attempts or any(attempt.unit == "GPU" for attempt in attempts) else attempts[0].unit
    ledger = Ledger(unit=unit)
    notes: list[str] = []
    for attempt, kept in zip(attempts, kept_steps(attempts), strict=True):
        if attempt.unit != unit:
            notes.append(f"attempt {attempt.number}: it had no GPUs, and is left out of the sums")
            continue
        of_attempt = _of_attempt(attempt, kept, newest=attempt is attempts[-1])
        _add(ledger, of_attempt)
        notes += [f"attempt {attempt.number}: {note}" for note in of_attempt.notes]
    ledger.notes = tuple(notes)
    ledger.provisional = any(of_attempt.provisional for of_attempt in ledger.attempts)
    return ledger


def _add(ledger: Ledger, attempt: AttemptLedger) -> None:
    ledger.attempts.append(attempt)
    ledger.add(attempt.buckets)
    for node, of_node in attempt.nodes.items():
        ledger.nodes.setdefault(node, Account()).add(of_node.buckets)
    for name, amount in attempt.phases.items():
        ledger.phases[name] = ledger.phases.get(name, 0) + amount
    ledger.queue_seconds += attempt.queue_seconds or 0.0


def _of_attempt(attempt: AttemptRecord, kept: int | None, newest: bool) -> AttemptLedger:
    since = lost_since(attempt, kept)
    queued = None if attempt.queued is None else max(0.0, attempt.start - attempt.queued)
    ledger = AttemptLedger(
        number=attempt.number,
        start=attempt.start,
        end=attempt.end,
        unit=attempt.unit,
        cause=attempt.cause,
        alive=attempt.alive,
        queue_seconds=queued,
        lost_since=since,
        notes=attempt.notes + _notes(attempt, kept, since),
    )
    _fill(ledger, attempt, since)
    slowest = slowest_rank(attempt.ranks)
    if slowest is not None:
        ledger.slowest_rank, ledger.slowest_node = slowest.rank, slowest.node
    # A later attempt that told nothing yet leaves the earlier ones open too.
    may_lose = last_step(attempt) is not None or (newest and attempt.alive)
    ledger.provisional = kept is None and attempt.cause != FINISHED and may_lose
    if ledger.provisional:
        ledger.at_risk = _at_risk(attempt)
    return ledger


def _notes(attempt: AttemptRecord, kept: int | None, since: float | None) -> tuple[str, ...]:
    notes: list[str] = []
    if attempt.end < attempt.start:
        notes.append("it ended before it started, by the clocks: it counts as 0 seconds")
    last = last_step(attempt)
    if since is None and kept is not None and last is not None and kept < last:
        notes.append(f"the steps after {kept:,} were done again; when it did them is not known")
    strays = sorted({rank.node for rank in attempt.ranks} - set(attempt.gpus))
    if strays:
        notes.append(f"ranks reported from nodes that are not part of it: {', '.join(strays[:4])}")
    return tuple(notes)


def _at_risk(attempt: AttemptRecord) -> int | None:
    known = [step for step in (attempt.durable_step, attempt.restored_step) if step is not None]
    if not known:
        return None
    scratch = AttemptLedger()
    _fill(scratch, attempt, lost_since(attempt, max(known)))
    return scratch[buckets.LOST]


def _fill(ledger: AttemptLedger, attempt: AttemptRecord, since: float | None) -> None:
    """Divides what the attempt had among its ranks and buckets."""
    by_node: dict[str, list[RankRecord]] = {node: [] for node in attempt.gpus}
    for rank in attempt.ranks:
        if rank.node in by_node:
            by_node[rank.node].append(rank)
    phases: dict[str, float] = {}
    had_by = _had(attempt)
    for node, ranks in by_node.items():
        had = had_by.get(node, 0)
        of_node = ledger.nodes.setdefault(node, Account())
        *of_ranks, unused = _shares(had, attempt.gpus[node], ranks)
        of_node.add({_without_ranks(attempt): unused} if unused else {})
        for rank, amount in zip(ranks, of_ranks, strict=True):
            amounts = apportioned(amount, _weights(rank, attempt, since)) if amount else {}
            of_node.add(amounts)
            ledger.ranks.setdefault(rank.rank, Account()).add(amounts)
            _add_phases(phases, rank)
        ledger.add(of_node.buckets)
    if ledger[buckets.PHASES]:
        ledger.phases = apportioned(ledger[buckets.PHASES], phases)


def _had(attempt: AttemptRecord) -> dict[str, int]:
    """Node → what the attempt was allocated there, in GPU-milliseconds."""
    units = {node: min(max(gpus, 0.0), _MOST_UNITS) for node, gpus in attempt.gpus.items()}
    if attempt.allocated is not None:
        return apportioned(max(0, attempt.allocated), units) if any(units.values()) else {}
    length = max(0, _milliseconds(attempt.end) - _milliseconds(attempt.start))
    return {node: round(gpus * length) for node, gpus in units.items()}


def _shares(had: int, units: float, ranks: list[RankRecord]) -> list[int]:
    """What each rank of a node had, and what is left."""
    used = [max(0.0, rank.gpus) for rank in ranks]
    left = max(0.0, units - sum(used))
    return apportion(had, [*used, left]) if had else [0] * (len(ranks) + 1)


def _without_ranks(attempt: AttemptRecord) -> str:
    """The bucket of what no rank used."""
    if attempt.ranks:
        return buckets.UNUSED
    return buckets.STARTUP if attempt.alive or attempt.began is False else buckets.UNKNOWN


def _weights(rank: RankRecord, attempt: AttemptRecord, since: float | None) -> dict[str, float]:
    """Bucket → seconds of the rank, over all of the attempt."""
    found: dict[str, float] = {}
    parts = pieces(rank, attempt, in_detail=since is not None or attempt.stalled_seconds > 0)
    for piece in parts if since is None else move(parts, since, PRODUCTIVE, buckets.LOST):
        for bucket, seconds in piece.spent.items():
            found[bucket] = found.get(bucket, 0.0) + seconds
    return found if any(seconds > 0 for seconds in found.values()) else {buckets.UNKNOWN: 1.0}


def _add_phases(phases: dict[str, float], rank: RankRecord) -> None:
    for activity, seconds in [*rank.spent.items(), (rank.activity or "", _INSTANT)]:
        if activity and buckets.bucket_of(activity) == buckets.PHASES and seconds > 0:
            phases[activity] = phases.get(activity, 0.0) + seconds * (rank.gpus if rank.gpus > 0 else _INSTANT)


def _milliseconds(time: float) -> int:
    return round(min(max(time, 0.0), _LATEST) * 1000)
