"""The answer of `slurmopt plan spot`, as lines for a terminal and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slurmopt.commands.plan.rates import amount
from slurmopt.estimates.spot_trace import Recording
from slurmopt.planning.spot.replay import Job, Outlook, count_of_starts, exponential_seconds
from slurmopt.planning.spot.trace import Uptimes
from slurmopt.runs.text_table import table, terminal_width
from slurmopt.units import human_seconds

_ROLES = {"best": "the best on this trace", "daly": "Daly's, for the mean uptime", "asked": "--every"}
_ENDLESS = 1e12
"""Seconds; a formula that says more says that it never finishes."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One interval between saves."""

    interval: float
    roles: list[str]
    found: Outlook | None
    """None where the training never finishes."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is printed."""

    recording: Recording
    job: Job
    up: Uptimes
    search: list[tuple[float, Outlook | None]]
    rows: list[Row]
    spot: float | None
    on_demand: float | None
    currency: str
    free: float
    """Seconds from its start within which an instance that is taken back costs nothing."""

    @property
    def taken(self) -> Outlook | None:
        """That of the best interval."""
        return next((row.found for row in self.rows if row.found is not None), None)

    @property
    def most(self) -> int:
        """Instances at one time."""
        return max(self.recording.trace.counts)

    @property
    def undisturbed(self) -> float:
        """Seconds on demand, with the saves of the interval to take."""
        return self.job.undisturbed(self.job.work if self.taken is None else self.taken.interval)

    @property
    def why_never(self) -> str:
        """Why nothing finishes, in words."""
        if not self.up.each:
            return f"the trace never has {self.up.nodes} instances: the most is {self.most}"
        longest = human_seconds(max(one.seconds for one in self.up.each))
        return f"it never finishes: of no uptime, the longest {longest}, a save is left over"

    @property
    def notes(self) -> list[str]:
        """What was assumed."""
        found, length = list(self.recording.notes), self.recording.trace.length
        if length < self.job.work:
            found.append(f"the trace of {human_seconds(length)} is shorter than the work: it begins again at its end")
        elif self.taken is not None and self.taken.p90 > length / 2:
            found.append("runs that reach the end of the trace go on at its beginning")
        if self.free > 0:
            found.append(
                "billed by the second; an instance that the cloud takes back within its first hour is free, one that "
                "you give back is not"
            )
        found.append("the instances of a gang that are left over are given back; the notice of 2 minutes is not used")
        return found


def lines(answer: Answer) -> list[str]:
    """The trace, the table, what to take, and the notes."""
    job, length = answer.job, answer.recording.trace.length
    drain = f", and is safe {human_seconds(job.drain)} later" if job.drain else ""
    found = [
        _trace_line(answer),
        f"{human_seconds(job.work)} of training; a save blocks {human_seconds(job.blocked)}{drain}; a start takes "
        f"{human_seconds(job.restart)}",
    ]
    if answer.rows:
        header = ["", "EVERY", "P50", "P90", "INTERRUPTED", "LOST", "BILLED", "FREE", "COST", ""]
        rows = [_cells(answer, row) for row in answer.rows]
        found += ["", table(header, rows, terminal_width()), ""]
    if (taken := answer.taken) is not None:
        found += _comparisons(answer, taken)
        found.append(f"next      slurmopt launch … checkpoint.every={_every(taken.interval)}")
    if answer.up.each:
        found.append(
            f"note      over {count_of_starts(answer.up)} starting points spread over the {human_seconds(length)}; "
            "INTERRUPTED, LOST, BILLED and FREE are means"
        )
    return found + [f"note      {note}" for note in answer.notes]


def _trace_line(answer: Answer) -> str:
    up, length = answer.up, human_seconds(answer.recording.trace.length)
    gang = f"{up.nodes} instance{'s' if up.nodes > 1 else ''}"
    if not up.each:
        return f"{length} of trace: never {gang}"
    if up.always:
        return f"{length} of trace: always {gang}"
    times = "once" if len(up.each) == 1 else f"{len(up.each):,} times"
    return (
        f"{length} of trace: {gang} for {up.available:.0%} of it, {times}; an uptime is "
        f"{human_seconds(up.mean)} in the mean and {human_seconds(up.median)} in the median, "
        f"{human_seconds(up.mean_wait)} until the next"
    )


def _cells(answer: Answer, row: Row) -> list[str]:
    one, what = row.found, ", ".join(_ROLES[role] for role in row.roles)
    if one is None:
        return ["", human_seconds(row.interval), "never", "never", "", "", "", "", "", what]
    cost = _cost(answer, one)
    return [
        "→" if one is answer.taken else "",
        human_seconds(row.interval),
        human_seconds(one.p50),
        human_seconds(one.p90),
        f"{one.tally.interruptions:.1f}",
        human_seconds(one.tally.lost),
        f"{one.tally.billed / 3600:,.1f} h",
        f"{one.tally.free / 3600:,.1f} h",
        "" if cost is None else amount(cost, answer.currency),
        what,
    ]


def _comparisons(answer: Answer, taken: Outlook) -> list[str]:
    found, up = [], answer.up
    if up.always:
        found.append("formula   nothing interrupts in this trace, so that it tells of no M")
    else:
        expected = exponential_seconds(up, answer.job, taken.interval)
        shown = human_seconds(expected) if expected < _ENDLESS else "for ever"
        found.append(
            f"formula   {shown} in the mean for an exponential life with M = {human_seconds(up.mean)}"
            f"; replayed {human_seconds(taken.mean)}"
        )
    hours = answer.undisturbed * up.nodes / 3600
    money, saved = "", ""
    if answer.on_demand is not None:
        money = f", {amount(hours * answer.on_demand, answer.currency)}"
        if (cost := _cost(answer, taken)) is not None:
            share = 1 - cost / (hours * answer.on_demand)
            saved = f"; spot is {abs(share):.0%} {'cheaper' if share >= 0 else 'dearer'}"
    return [*found, f"on demand {human_seconds(answer.undisturbed)}, {hours:,.1f} instance-hours{money}{saved}"]


def _every(interval: float) -> str:
    return f"{round(interval / 60)}min" if interval >= 600 else f"{max(1, round(interval))}s"


def _cost(answer: Answer, one: Outlook) -> float | None:
    return None if answer.spot is None else one.tally.billed / 3600 * answer.spot


def as_json(answer: Answer) -> dict[str, Any]:
    """The object that the command's module describes."""
    up, job, trace, taken = answer.up, answer.job, answer.recording.trace, answer.taken
    interrupted = bool(up.each) and not up.always
    hours = answer.undisturbed * up.nodes / 3600
    return {
        "trace": {
            "seconds": trace.length,
            "counts": len(trace.counts),
            "most": answer.most,
            "available": up.available,
            "uptimes": len(up.each),
            "mean_up": up.mean if interrupted else None,
            "median_up": up.median if interrupted else None,
            "mean_wait": up.mean_wait if interrupted else None,
        },
        "job": {"work": job.work, "save": job.blocked, "restart": job.restart, "drain": job.drain, "nodes": up.nodes},
        "starts": count_of_starts(up) if up.each else 0,
        "rows": [_row(answer, row) for row in answer.rows],
        "search": [
            {"interval": interval, "mean": None if found is None else found.mean} for interval, found in answer.search
        ],
        "formula": {"mtbf": up.mean, "seconds": exponential_seconds(up, job, taken.interval)}
        if interrupted and taken is not None
        else None,
        "on_demand": {
            "seconds": answer.undisturbed,
            "hours": hours,
            "cost": None if answer.on_demand is None else hours * answer.on_demand,
        },
        "currency": answer.currency or None,
        "notes": answer.notes,
    }


def _row(answer: Answer, row: Row) -> dict[str, Any]:
    one = row.found
    names = ("p50", "p90", "mean", "interruptions", "lost", "billed_hours", "free_hours", "cost")
    values: tuple[float | None, ...] = (None,) * len(names)
    if one is not None:
        tally = one.tally
        values = (one.p50, one.p90, one.mean, tally.interruptions, tally.lost, tally.billed / 3600, tally.free / 3600,
                  _cost(answer, one))  # fmt: skip
    return {"interval": row.interval, "roles": row.roles, **dict(zip(names, values, strict=True))}
