"""A sweep's status for people: one line in a table, or a page of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nlargest
from math import inf

from slurmopt.errors import one_line
from slurmopt.grid.point_ranges import Ranges
from slurmopt.restart import causes
from slurmopt.run_folder import events
from slurmopt.runs.options import word_for
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.status.state import ALIVE, ENDED, age
from slurmopt.runs.status.view import whose
from slurmopt.runs.table import cut, table
from slurmopt.sweeps.status.failures import Group, groups
from slurmopt.sweeps.status.point_states import SweepStates
from slurmopt.units import human_seconds

_BAR = 40
_ORDER = (*ENDED, "running", "stopping", "requeued", "pending", "unsubmitted", "unknown")
_RECENT = 200
"""Ends that the pace is reckoned from."""
_NOBODY_KNOWS = -inf
_PLAIN = 100.0
"""From here on a rate is a whole number."""
_MOST_GROUPS = 8
_MOST_POINTS = 50
_LONGEST_POINTS = 40


@dataclass(frozen=True)
class Pace:
    """How fast points end, by the latest of them."""

    per_minute: float | None
    left: float | None
    """Seconds until the rest has ended at that pace."""


def over(counts: dict[str, int]) -> int:
    """How many points have ended."""
    return sum(counts.get(word, 0) for word in ENDED)


def pace(standing: SweepStates) -> Pace:
    """Ends a minute over the latest ends, up to now while points go on: a sweep that stands still slows down."""
    counts = standing.counts()
    ends = nlargest(_RECENT, _ends(standing))
    alive = any(word in counts for word in ALIVE)
    begun = [started for _, started in ends if started > _NOBODY_KNOWS]
    if not begun:
        return Pace(None, None)
    since = standing.now if alive else ends[0][0]
    rate = len(ends) / max(since - min(begun), 1e-3)  # points side by side end together: their start counts too
    left = sum(counts.get(word, 0) for word in (*ALIVE, "unsubmitted"))
    return Pace(rate * 60, left / rate if alive else None)


def _ends(standing: SweepStates) -> Iterator[tuple[float, float]]:
    """When points ended, and when they had started."""
    for ended, started in zip(standing.ends.ended, standing.ends.started, strict=True):
        if ended == ended:  # not nan
            yield ended, started if started == started else _NOBODY_KNOWS
    for point in standing.points.values():
        if point.ended is not None:
            yield point.ended, _NOBODY_KNOWS if point.started is None else point.started


def cells(standing: SweepStates) -> list[str]:
    """As a line among runs: RUN, STATE, STEP, LEFT, TIME and a remark."""
    counts, seen = standing.counts(), pace(standing)
    left = human_seconds(seen.left) if seen.left is not None else ""
    remark = [whose(owner_of(standing.sweep.run)), f"sweep: {state_counts(counts)}"]
    return [
        standing.label,
        standing.state,
        f"{over(counts)}/{standing.count}",
        left,
        "",
        "; ".join(filter(None, remark)),
    ]


def cells_of_points(standing: SweepStates, points: Ranges) -> list[str]:
    """Several points as a line among runs."""
    counts = standing.counts(points)
    return [f"{standing.label}/{short(points)}", "", f"{over(counts)}/{len(points)}", "", "", state_counts(counts)]


def state_counts(counts: dict[str, int]) -> str:
    """`7,300 finished · 12 failed · 64 running`."""
    return " · ".join(f"{counts[word]:,} {word}" for word in _ORDER if counts.get(word)) or "no points"


def page(standing: SweepStates) -> str:
    """One sweep, with all that helps to understand it and what to do next."""
    counts, failed = standing.counts(), groups(standing)
    facts = [
        ("owner", whose(owner_of(standing.sweep.run)).removeprefix("of ")),
        ("points", f"{over(counts):,} of {standing.count:,} have ended"),
        ("", bar(over(counts), standing.count)),
        ("states", state_counts(counts)),
        ("pace", _pace(standing)),
        ("waits", _waits(standing)),
        ("then", _then(standing)),
        ("time", f"launched {age(standing.created, standing.now)}" if standing.created is not None else ""),
        ("jobs", _jobs(standing)),
        *_failures(failed),
        ("folder", str(standing.sweep.path)),
        *[("next" if index == 0 else "", step) for index, step in enumerate(next_steps(standing, failed))],
    ]
    lines = [f"  {label:10} {one_line(text)}".rstrip() for label, text in facts if text]
    return "\n".join([f"{standing.label}: {standing.state}", *lines])


def bar(done: int, count: int) -> str:
    """`████████░░░░  66 %`; full only where all are done."""
    share = done / count if count else 0.0
    full = int(share * _BAR)
    return f"{'█' * full}{'░' * (_BAR - full)}  {int(share * 100)} %"


def _pace(standing: SweepStates) -> str:
    seen = pace(standing)
    rate = f"{_rate(seen.per_minute)} points a minute" if seen.per_minute is not None else ""
    left = f"about {human_seconds(seen.left)} left" if seen.left is not None else ""
    return ", ".join(filter(None, (rate, left)))


def _rate(number: float) -> str:
    return f"{number:,.0f}" if number >= _PLAIN else f"{number:.3g}"


def _waits(standing: SweepStates) -> str:
    """Why most of those that wait do so."""
    waiting = [rest for rest in standing.rest if rest.state == "pending" and rest.detail]
    most = max(waiting, key=lambda rest: len(rest.points), default=None)
    later = standing.numbers("unsubmitted")
    said = [most.detail or ""] if most else []
    if later and standing.state != "unsubmitted" and standing.sweep.more.exists():
        said.append(f"{len(later):,} points are submitted as soon as the site's limits make room")
    return "; ".join(said)


def _then(standing: SweepStates) -> str:
    """Why what follows the sweep is not launched yet, where that was tried."""
    if not standing.sweep.more.exists():
        return ""
    failed = events.read(standing.sweep.events, "then-failed")
    return f"sweep.then is not launched yet: {failed[-1].get('reason')}; slurmopt tend tries again" if failed else ""


def _jobs(standing: SweepStates) -> str:
    shown = [f"{one.job} ({short(one.points)})" for one in standing.submissions[-3:] if one.job]
    before = len(standing.submissions) - 3
    return ", ".join([*([f"{before} before"] if before > 0 else []), *shown])


def short(points: Ranges, most: int = _LONGEST_POINTS) -> str:
    """The ranges as far as they fit."""
    said = str(Ranges(points.spans[:most]))
    if len(said) <= most and len(points.spans) <= most:
        return said
    return said[: said.rfind(",", 0, most)] + ",…" if "," in said[:most] else said[:most] + "…"


def _failures(failed: list[Group]) -> list[tuple[str, str]]:
    lines = [("failures" if index == 0 else "", _group(group)) for index, group in enumerate(failed[:_MOST_GROUPS])]
    left = failed[_MOST_GROUPS:]
    if left:
        count = sum(len(group.points) for group in left)
        lines.append(("", f"{count:,} points in {len(left)} more ways; --json lists them"))
    return lines


def _group(group: Group) -> str:
    cause = f"{group.cause}: " if group.cause and group.cause not in group.error else ""
    count = f"{len(group.points):,} point{'s' if len(group.points) != 1 else ''}"
    return f"{count} ({short(group.points)}): {cut(cause + group.error, 160)}"


def next_steps(standing: SweepStates, failed: list[Group]) -> list[str]:
    """The commands that help now."""
    label, steps = word_for(standing.sweep.run, standing.label), []
    if failed:
        more = causes.RETRY_OPTIONS.get(failed[0].cause or "", "")
        steps += [f"slurmopt logs {label}/{failed[0].example} --errors", f"slurmopt retry {label} --failed{more}"]
    elif standing.numbers("cancelled") and not standing.alive:
        steps.append(f"slurmopt retry {label} goes on with the cancelled points")
    if standing.alive:
        steps.append(f"slurmopt status {label} --watch")
    if standing.numbers("finished"):
        steps.append(f"slurmopt results {label}")
    if standing.state == "unsubmitted":
        steps.append(f"slurmopt launch -m … launch.id={one_line(standing.sweep.id)} submits it")
    return steps


def points_table(standing: SweepStates, points: Ranges, width: int | None) -> str:
    """Several points, a line each."""
    rows = []
    for number in points.slice(0, _MOST_POINTS):
        point = standing.of(number)
        took = human_seconds(point.seconds) if point.seconds is not None else ""
        again = f"attempt {point.attempt}" if point.attempt else ""
        rows.append([str(number), point.state, took, "; ".join(filter(None, (point.detail, again)))])
    head = f"{standing.label}: {state_counts(standing.counts(points))}"
    lines = [head, table(["POINT", "STATE", "TIME", ""], rows, width)]
    if len(points) > _MOST_POINTS:
        lines.append(f"… and {len(points) - _MOST_POINTS:,} more; --json lists them all")
    return "\n".join(lines)


def unstarted_page(standing: SweepStates, number: int) -> str:
    """A point that has no folder yet."""
    point, word = standing.of(number), word_for(standing.sweep.run, standing.label)
    step = f"slurmopt retry {word}/{number}" if point.state in ENDED else f"slurmopt cancel {word}/{number}"
    lines = [f"{standing.label}/{number}: {point.state}"]
    if point.detail:
        lines.append(f"  {'why':10} {point.detail}")
    lines.append(f"  {'sweep':10} {state_counts(standing.counts())}")
    return "\n".join([*lines, f"  {'next':10} slurmopt status {word} --watch; {step}"])
