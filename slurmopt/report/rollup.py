"""The report on many runs together: the points of a sweep, or all runs of a user. Times and durations are in seconds.

Definitions:

completion rate    runs that finished, of those that have ended
recovery           from the end of an attempt to the first new step of the next one: the queue, and what that attempt
                   spent on start-up, health check, rendezvous, restore, compile and first steps
first wait         from the submission of a run to its first start
wait of a restart  from the end of an attempt, or its requeue, to the start of the next one
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from slurmopt.ledger import buckets
from slurmopt.ledger.ledger import AttemptLedger, total
from slurmopt.ledger.prices import Prices
from slurmopt.report.run import build, costs
from slurmopt.report.run.run_report import Cost, Share
from slurmopt.report.run_record import RunRecord
from slurmopt.report.sweep_record import SweepRecord

ENDED = ("finished", "failed", "killed", "cancelled", "lost")
_GETTING_READY = (buckets.STARTUP, buckets.HEALTH, buckets.RENDEZVOUS, buckets.RESTORE, buckets.FIRST_STEPS)
_MILLISECONDS = 1000.0


@dataclass(frozen=True)
class Spread:
    """Durations, as a few numbers."""

    count: int
    median: float
    p90: float
    most: float


@dataclass(frozen=True)
class Member:
    """One run, or one point."""

    label: str
    group: str
    """Its experiment."""
    state: str
    created: float | None
    unit: str
    device_seconds: float
    compute: float
    """Share of it in the bucket compute."""
    attempts: int
    cost: float | None = None


@dataclass(frozen=True)
class Group:
    """The runs of one experiment."""

    name: str
    runs: int
    finished: int
    device_seconds: float
    compute: float
    cost: float | None = None


@dataclass
class RollUp:
    """Many runs together."""

    title: str
    now: float
    since: float | None = None
    unit: str = "GPU"
    runs: int = 0
    states: dict[str, int] = field(default_factory=dict)
    device_seconds: float = 0.0
    shares: list[Share] = field(default_factory=list)
    cost: Cost = field(default_factory=Cost)
    completion_rate: float | None = None
    attempts: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    """Cause of an attempt's end → how many."""
    recovery: Spread | None = None
    first_wait: Spread | None = None
    restart_wait: Spread | None = None
    groups: list[Group] = field(default_factory=list)
    """The one with the most time first."""
    members: list[Member] = field(default_factory=list)
    """The one with the most time first."""
    provisional: bool = False
    notes: list[str] = field(default_factory=list)


def of_sweep(record: SweepRecord) -> RollUp:
    """The report on a sweep."""
    ledger = record.ledger
    rollup = RollUp(record.label, record.now, unit=ledger.unit)
    points = [(f"point {number}", point) for number, point in sorted(record.points.items())]
    rollup.states = dict(record.states.counts())
    rollup.runs = record.states.count
    _add(rollup, points, [record.label] * len(points))
    rollup.device_seconds = ledger.allocated / _MILLISECONDS
    rollup.shares = build.shares(ledger)
    rollup.groups = []
    rollup.provisional = ledger.provisional
    rollup.notes += [*record.problems, *ledger.notes]
    return rollup


def of_user(records: Sequence[RunRecord], title: str, now: float, since: float | None) -> RollUp:
    """The report on many runs. Those without GPUs are left out where there are some with GPUs."""
    used = {record.ledger.unit for record in records if record.ledger.allocated}
    rollup = RollUp(title, now, since, unit="GPU" if "GPU" in used or not used else "CPU")
    rollup.runs = len(records)
    rollup.states = dict(Counter(record.state for record in records).most_common())
    of_unit = [record for record in records if record.ledger.unit == rollup.unit or not record.ledger.allocated]
    _add(rollup, [(record.label, record) for record in of_unit], [record.name for record in of_unit])
    account = total(record.ledger for record in of_unit if record.ledger.allocated)
    rollup.device_seconds = account.allocated / _MILLISECONDS
    rollup.shares = build.shares(account)
    rollup.provisional = any(record.ledger.provisional for record in of_unit)
    if len(of_unit) < len(records):
        rollup.notes.append(f"{len(records) - len(of_unit):,} runs had no GPU, and are left out of the hours")
    rollup.notes += _problems(records)
    return rollup


def _problems(records: Iterable[RunRecord]) -> list[str]:
    told = [f"{record.label}: {problem}" for record in records for problem in record.problems]
    return [*told[:5], f"and {len(told) - 5:,} more such notes"] if len(told) > 6 else told


def _add(rollup: RollUp, named: Sequence[tuple[str, RunRecord]], groups: Sequence[str]) -> None:
    prices, unknown = costs.known_prices()
    members = [_member(label, record, group, prices) for (label, record), group in zip(named, groups, strict=True)]
    rollup.cost = _total_cost(members, prices)
    unpriced = sum(member.device_seconds > 0 and member.cost is None for member in members)
    if rollup.cost.amount is not None and unpriced:
        unknown.append(f"of {unpriced:,} runs no price is known: the cost is that of the others")
    rollup.notes += unknown
    attempts = [record.ledger.attempts for _, record in named]
    rollup.members = sorted(members, key=lambda member: -member.device_seconds)
    rollup.groups = _groups(members)
    ended = [count for state, count in rollup.states.items() if state in ENDED]
    rollup.completion_rate = rollup.states.get("finished", 0) / sum(ended) if sum(ended) else None
    rollup.attempts = sum(map(len, attempts))
    rollup.causes = dict(Counter(one.cause for each in attempts for one in each if one.cause).most_common())
    rollup.recovery = spread(seconds for each in attempts for seconds in _recoveries(each))
    rollup.first_wait = spread(each[0].queue_seconds for each in attempts if each)
    rollup.restart_wait = spread(one.queue_seconds for each in attempts for one in each[1:])


def _member(label: str, record: RunRecord, group: str, prices: Prices | None) -> Member:
    ledger = record.ledger
    seconds = ledger.allocated / _MILLISECONDS
    device = costs.device_of(record.folder) if prices is not None and ledger.unit == "GPU" and seconds else None
    when = record.attempts[-1].start if record.attempts else None
    cost, _ = costs.cost_of(prices, device, ledger.unit, seconds, when)
    return Member(
        label=label,
        group=group,
        state=record.state,
        created=record.status.journal.created,
        unit=ledger.unit,
        device_seconds=seconds,
        compute=ledger.share(buckets.COMPUTE),
        attempts=len(ledger.attempts),
        cost=cost.amount,
    )


def _total_cost(members: Sequence[Member], prices: Prices | None) -> Cost:
    known = _sum(member.cost for member in members)
    return Cost() if known is None or prices is None else Cost(known, prices.currency)


def _sum(amounts: Iterable[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def _groups(members: Sequence[Member]) -> list[Group]:
    by_name: dict[str, list[Member]] = {}
    for member in members:
        by_name.setdefault(member.group, []).append(member)
    return sorted((_group(name, found) for name, found in by_name.items()), key=lambda group: -group.device_seconds)


def _group(name: str, members: Sequence[Member]) -> Group:
    seconds = sum(member.device_seconds for member in members)
    compute = sum(member.compute * member.device_seconds for member in members)
    finished = sum(member.state == "finished" for member in members)
    cost = _sum(member.cost for member in members)
    return Group(name, len(members), finished, seconds, compute / seconds if seconds else 0.0, cost)


def _recoveries(attempts: Sequence[AttemptLedger]) -> Iterable[float]:
    for before, after in pairwise(attempts):
        if after.allocated and after[buckets.COMPUTE]:
            ready = sum(after.share(bucket) for bucket in _GETTING_READY) * (after.end - after.start)
            yield max(0.0, after.start - before.end) + ready


def spread(values: Iterable[float | None]) -> Spread | None:
    """Median, 90th percentile and largest of those that are known; None where there is none."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return Spread(len(known), statistics.median(known), known[min(len(known) - 1, int(0.9 * len(known)))], known[-1])
