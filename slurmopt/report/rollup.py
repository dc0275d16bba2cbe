"""The report on many runs together: the points of a sweep, or all runs of a user. Times and durations are in seconds.

Definitions:

completion rate    runs that finished, of those that have ended
recovery           from the end of an attempt to the first new step of the next one: the queue, and what that attempt
                   spent on start-up, health check, staging, rendezvous, restore, compile and first steps
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
from slurmopt.ledger.ledger import Account, AttemptLedger, Ledger, total
from slurmopt.ledger.prices import Prices
from slurmopt.report.run import build, costs
from slurmopt.report.run.run_report import Cost, Share
from slurmopt.report.run_record import RunRecord
from slurmopt.report.sweep_record import SweepRecord

ENDED = ("finished", "failed", "killed", "cancelled", "lost")
_GETTING_READY = (
    buckets.STARTUP,
    buckets.HEALTH,
    buckets.STAGING,
    buckets.RENDEZVOUS,
    buckets.RESTORE,
    buckets.FIRST_STEPS,
)
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
    """One run, one point, or of a report on a user a whole sweep."""

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
    runs: int = 1
    """Of a sweep, how many points it has."""
    finished: int = 0
    """How many of them have finished."""
    unpriced: int = 0
    """How many of them had devices that have no known price."""


@dataclass(frozen=True)
class Group:
    """The runs of one experiment."""

    name: str
    runs: int
    """The points of its sweeps are runs too."""
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
    """The points of sweeps are runs too."""
    sweeps: int = 0
    """Of a report on a user: how many sweeps these points are of."""
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
    """The report on a sweep, or on those of its points that the record has."""
    ledger = record.ledger
    rollup = RollUp(record.label, record.now, unit=ledger.unit)
    rollup.states = record.counts
    rollup.runs = record.count
    prices, unknown = costs.known_prices()
    points = sorted(record.points.items())
    members = [_member(f"point {number}", point, record.label, prices) for number, point in points]
    rollup.notes += unknown
    _add(rollup, members, [point for _, point in points], prices, _cost_between(record, members))
    rollup.groups = []
    _add_account(rollup, ledger, _goes_on(record))
    rollup.notes += [*record.problems, *ledger.notes]
    return rollup


def of_user(
    records: Sequence[RunRecord], sweeps: Sequence[SweepRecord], title: str, now: float, since: float | None
) -> RollUp:
    """The report on many runs and sweeps. Where some had GPUs, those without count for states, attempts and waits, and
    are left out of hours and cost."""
    ledgers = [*(record.ledger for record in records), *(sweep.ledger for sweep in sweeps)]
    used = {ledger.unit for ledger in ledgers if ledger.allocated}
    rollup = RollUp(title, now, since, unit="GPU" if "GPU" in used or not used else "CPU")
    rollup.runs = len(records) + sum(sweep.count for sweep in sweeps)
    rollup.sweeps = len(sweeps)
    rollup.states = _states(records, sweeps)
    runs = [record for record in records if _counts(record.ledger, rollup.unit)]
    counted = [sweep for sweep in sweeps if _counts(sweep.ledger, rollup.unit)]
    prices, unknown = costs.known_prices()
    members = [_member(record.label, record, record.name, prices) for record in runs]
    members += [_sweep_member(sweep, prices) for sweep in counted]
    rollup.notes += unknown
    _add(rollup, members, [*records, *(point for sweep in sweeps for point in sweep.points.values())], prices)
    ledgers = [ledger for ledger in ledgers if _counts(ledger, rollup.unit)]
    _add_account(rollup, total(ledgers), any(map(_goes_on, runs)) or any(map(_goes_on, counted)))
    rollup.notes += [*_left_out(records, sweeps, rollup.unit), *_problems([*records, *sweeps])]
    return rollup


def _goes_on(record: RunRecord | SweepRecord) -> bool:
    """Whether time is still added to it, or may still count as lost. A failed run could be retried; it has ended."""
    states = [record.state] if isinstance(record, RunRecord) else list(record.counts)
    return record.ledger.provisional and any(state not in ENDED for state in states)


def _counts(ledger: Ledger, unit: str) -> bool:
    return ledger.unit == unit or not ledger.allocated


def _states(records: Sequence[RunRecord], sweeps: Sequence[SweepRecord]) -> dict[str, int]:
    states = Counter(record.state for record in records)
    for sweep in sweeps:
        states.update(sweep.counts)
    return dict(states.most_common())


def _left_out(records: Sequence[RunRecord], sweeps: Sequence[SweepRecord], unit: str) -> list[str]:
    runs = sum(not _counts(record.ledger, unit) for record in records)
    runs += sum(not _counts(point.ledger, unit) for sweep in sweeps for point in sweep.points.values())
    return [f"{runs:,} runs had no GPU: they are left out of the hours, the cost and the tables"] if runs else []


def _problems(records: Iterable[RunRecord | SweepRecord]) -> list[str]:
    told = [f"{record.label}: {problem}" for record in records for problem in record.problems]
    return [*told[:5], f"and {len(told) - 5:,} more such notes"] if len(told) > 6 else told


def _add_account(rollup: RollUp, account: Account, provisional: bool) -> None:
    rollup.device_seconds = account.allocated / _MILLISECONDS
    rollup.shares = build.shares(account)
    rollup.provisional = provisional


def _add(
    rollup: RollUp,
    members: Sequence[Member],
    records: Sequence[RunRecord],
    prices: Prices | None,
    besides: float | None = None,
) -> None:
    """Adds what is known of the members, and of the attempts of `records`: runs and points. `besides`: a further
    cost."""
    rollup.cost = _total_cost([*(member.cost for member in members), besides], prices)
    unpriced = sum(member.unpriced for member in members)
    if rollup.cost.amount is not None and unpriced:
        rollup.notes.append(f"of {unpriced:,} runs no price is known: the cost is that of the others")
    attempts = [record.ledger.attempts for record in records]
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
    device = None
    if prices is not None and ledger.unit == "GPU" and seconds:
        device = record.gpu or costs.device_of(record.folder)
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
        finished=int(record.state == "finished"),
        unpriced=int(seconds > 0 and cost.amount is None),
    )


def _sweep_member(sweep: SweepRecord, prices: Prices | None) -> Member:
    """A sweep as one member: with all of its points, and what its array tasks used besides."""
    ledger = sweep.ledger
    points = [_member(point.label, point, "", prices) for point in sweep.points.values()]
    of_unit = [point for point in points if point.unit == ledger.unit]
    return Member(
        label=sweep.label,
        group=sweep.states.sweep.name,
        state=sweep.states.state,
        created=sweep.states.created,
        unit=ledger.unit,
        device_seconds=ledger.allocated / _MILLISECONDS,
        compute=ledger.share(buckets.COMPUTE),
        attempts=sum(point.attempts for point in points),
        cost=_sum([*(point.cost for point in of_unit), _cost_between(sweep, of_unit)]),
        runs=sweep.count,
        finished=sweep.counts.get("finished", 0),
        unpriced=sum(point.unpriced for point in of_unit),
    )


def _cost_between(sweep: SweepRecord, points: Sequence[Member]) -> float | None:
    """The cost of what array tasks used besides their points, at the mean price of the points."""
    known = [point for point in points if point.cost is not None and point.device_seconds]
    seconds = sum(point.device_seconds for point in known)
    cost = _sum(point.cost for point in known)
    return None if cost is None else cost / seconds * sweep.between.allocated / _MILLISECONDS


def _total_cost(amounts: Sequence[float | None], prices: Prices | None) -> Cost:
    known = _sum(amounts)
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
    runs, finished = sum(member.runs for member in members), sum(member.finished for member in members)
    cost = _sum(member.cost for member in members)
    return Group(name, runs, finished, seconds, compute / seconds if seconds else 0.0, cost)


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
