"""Formats a sweep's status for people: as a row of a table, or as a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nlargest
from math import inf

from slurmopt.config.sweep import BATCH_SIZE, TUNING
from slurmopt.errors import one_line
from slurmopt.grid.point_ranges import Ranges
from slurmopt.restart import causes
from slurmopt.run_folder import events
from slurmopt.runs import stored_config
from slurmopt.runs.colour import of_state, paint
from slurmopt.runs.options import run_arg
from slurmopt.runs.ownership import owner_of
from slurmopt.runs.status.next_commands import listed, repeated_launch
from slurmopt.runs.status.state import ALIVE, ENDED, age
from slurmopt.runs.status.view import whose
from slurmopt.runs.text_table import cut, table
from slurmopt.sweeps.status.failures import Group, groups
from slurmopt.sweeps.status.point_states import SweepStates
from slurmopt.units import human_seconds

_BAR = 40
_ORDER = (*ENDED, "running", "stopping", "requeued", "pending", "unsubmitted", "unknown")
_RECENT = 200
"""How many of the latest ends the pace is computed from."""
_UNKNOWN_TIME = -inf
_PLAIN = 100.0
"""Rates from here on are shown as whole numbers."""
_MOST_GROUPS = 8
_MOST_POINTS = 50
_LONGEST_POINTS = 40


@dataclass(frozen=True)
class Pace:
    """How fast points end, from the latest ends."""

    per_minute: float | None
    left: float | None
    """Seconds until the rest will have ended at that pace."""


def over(counts: dict[str, int]) -> int:
    """How many points have ended."""
    return sum(counts.get(state, 0) for state in ENDED)


def pace(states: SweepStates) -> Pace:
    """The pace over the latest ends. While points run it is computed up to now, so that it falls when nothing ends."""
    counts = states.counts()
    ends = nlargest(_RECENT, _ends(states))
    alive = any(word in counts for word in ALIVE)
    starts = [started for _, started in ends if started > _UNKNOWN_TIME]
    if not starts:
        return Pace(None, None)
    since = states.now if alive else ends[0][0]
    rate = len(ends) / max(since - min(starts), 1e-3)  # parallel points end together, so their starts count
    remaining = sum(counts.get(word, 0) for word in (*ALIVE, "unsubmitted"))
    return Pace(rate * 60, remaining / rate if alive else None)


def _ends(states: SweepStates) -> Iterator[tuple[float, float]]:
    """When points ended, and when they started."""
    for ended, started in zip(states.ends.ended, states.ends.started, strict=True):
        if ended == ended:  # not nan
            yield ended, started if started == started else _UNKNOWN_TIME
    for point in states.points.values():
        if point.ended is not None:
            yield point.ended, _UNKNOWN_TIME if point.started is None else point.started


def cells(states: SweepStates) -> list[str]:
    """The sweep's row in a table of runs: RUN, STATE, STEP, LEFT, TIME and a remark."""
    counts, current_pace = states.counts(), pace(states)
    remaining = human_seconds(current_pace.left) if current_pace.left is not None else ""
    remark = [whose(owner_of(states.sweep.run)), f"sweep: {state_counts(counts)}"]
    return [
        states.label,
        states.state,
        f"{over(counts)}/{states.count}",
        remaining,
        "",
        "; ".join(filter(None, remark)),
    ]


def cells_of_points(states: SweepStates, points: Ranges) -> list[str]:
    """The row of several points in a table of runs."""
    counts = states.counts(points)
    return [f"{states.label}/{short(points)}", "", f"{over(counts)}/{len(points)}", "", "", state_counts(counts)]


def state_counts(counts: dict[str, int]) -> str:
    """`7,300 finished · 12 failed · 64 running`."""
    return " · ".join(f"{counts[state]:,} {state}" for state in _ORDER if counts.get(state)) or "no points"


def page(states: SweepStates, coloured: bool = False) -> str:
    """The page of one sweep, with the next commands."""
    counts, failures = states.counts(), groups(states)
    facts = [
        ("owner", whose(owner_of(states.sweep.run)).removeprefix("of ")),
        ("points", f"{over(counts):,} of {states.count:,} have ended"),
        ("", bar(over(counts), states.count)),
        ("states", state_counts(counts)),
        ("pace", _pace(states)),
        ("waits", _waits(states)),
        ("then", _then(states)),
        ("time", f"launched {age(states.created, states.now)}" if states.created is not None else ""),
        ("jobs", _jobs(states)),
        *_failures(failures),
        ("folder", str(states.sweep.path)),
        *[("next" if index == 0 else "", step) for index, step in enumerate(next_steps(states, failures))],
    ]
    lines = [f"  {label:10} {one_line(text)}".rstrip() for label, text in facts if text]
    state = paint(states.state, of_state(states.state)) if coloured else states.state
    return "\n".join([f"{states.label}: {state}", *lines])


def bar(ended: int, count: int) -> str:
    """`████████░░░░  66 %`; full only where all points have ended."""
    share = ended / count if count else 0.0
    full = int(share * _BAR)
    return f"{'█' * full}{'░' * (_BAR - full)}  {int(share * 100)} %"


def _pace(states: SweepStates) -> str:
    current_pace = pace(states)
    rate = f"{_rate(current_pace.per_minute)} points a minute" if current_pace.per_minute is not None else ""
    remaining = f"about {human_seconds(current_pace.left)} left" if current_pace.left is not None else ""
    return ", ".join(filter(None, (rate, remaining)))


def _rate(number: float) -> str:
    return f"{number:,.0f}" if number >= _PLAIN else f"{number:.3g}"


def _waits(states: SweepStates) -> str:
    """Why most of the waiting points wait."""
    waiting = [rest for rest in states.rest if rest.state == "pending" and rest.detail]
    most = max(waiting, key=lambda rest: len(rest.points), default=None)
    later = states.numbers("unsubmitted")
    reasons = [most.detail or ""] if most else []
    if later and states.state != "unsubmitted" and states.sweep.more.exists():
        reasons.append(f"{len(later):,} points are submitted as soon as the site's limits make room")
    return "; ".join(reasons)


def _then(states: SweepStates) -> str:
    """Why `sweep.then` is not launched yet, where a launch of it failed."""
    if not states.sweep.more.exists():
        return ""
    failed = events.read(states.sweep.events, "then-failed")
    return f"sweep.then is not launched yet: {failed[-1].get('reason')}; slurmopt tend tries again" if failed else ""


def _jobs(states: SweepStates) -> str:
    shown = [f"{entry.job} ({short(entry.points)})" for entry in states.submissions[-3:] if entry.job]
    earlier = len(states.submissions) - 3
    return ", ".join([*([f"{earlier} before"] if earlier > 0 else []), *shown])


def short(points: Ranges, most: int = _LONGEST_POINTS) -> str:
    """The ranges, cut where they are longer than `most` characters."""
    text = str(Ranges(points.spans[:most]))
    if len(text) <= most and len(points.spans) <= most:
        return text
    return text[: text.rfind(",", 0, most)] + ",…" if "," in text[:most] else text[:most] + "…"


def _failures(failed: list[Group]) -> list[tuple[str, str]]:
    lines = [("failures" if index == 0 else "", _group(group)) for index, group in enumerate(failed[:_MOST_GROUPS])]
    omitted = failed[_MOST_GROUPS:]
    if omitted:
        count = sum(len(group.points) for group in omitted)
        lines.append(("", f"{count:,} points in {len(omitted)} more ways; --json lists them"))
    return lines


def _group(group: Group) -> str:
    cause = f"{group.cause}: " if group.cause and group.cause not in group.error else ""
    count = f"{len(group.points):,} point{'s' if len(group.points) != 1 else ''}"
    return f"{count} ({short(group.points)}): {cut(cause + group.error, 160)}"


def next_steps(states: SweepStates, failed: list[Group]) -> list[str]:
    """The commands to run next."""
    label, steps = run_arg(states.sweep.run, states.label), []
    search = stored_config.group(states.sweep.run, "sweep").get("search")
    if search in TUNING:  # a failed trial is tried, too
        steps.append(f"slurmopt tune {'batch' if search == BATCH_SIZE else 'loader'} --read {label}")
        steps += [f"slurmopt logs {label}/{failed[0].example} --errors"] if failed else []
    elif owner_of(states.sweep.run) is not None:  # only its owner can submit, retry or cancel it
        steps += [f"slurmopt logs {label}/{failed[0].example} --errors"] if failed else []
    elif failed:
        options = causes.RETRY_OPTIONS.get(failed[0].cause or "", "")
        steps += [f"slurmopt logs {label}/{failed[0].example} --errors", f"slurmopt retry {label} --failed{options}"]
    elif states.numbers("cancelled") and not states.alive:
        steps.append(f"slurmopt retry {label}  # goes on with the cancelled points")
    if states.alive:
        steps.append(f"slurmopt status {label} --watch")
    if states.numbers("finished"):
        steps.append(f"slurmopt results {label}")
    if states.state == "unsubmitted" and owner_of(states.sweep.run) is None:
        steps.append(repeated_launch(states.sweep.run, multirun=True))
    return steps


def points_table(states: SweepStates, points: Ranges, width: int | None, coloured: bool = False) -> str:
    """A table of several points, one row each."""
    rows = []
    for number in points.slice(0, _MOST_POINTS):
        point = states.of(number)
        duration = human_seconds(point.seconds) if point.seconds is not None else ""
        attempt = f"attempt {point.attempt}" if point.attempt else ""
        rows.append([str(number), point.state, duration, "; ".join(filter(None, (point.detail, attempt)))])
    head = f"{states.label}: {state_counts(states.counts(points))}"
    lines = [head, table(["POINT", "STATE", "TIME", ""], rows, width, coloured)]
    if len(points) > _MOST_POINTS:
        lines.append(f"… and {len(points) - _MOST_POINTS:,} more; --json lists them all")
    return "\n".join(lines)


def unstarted_page(states: SweepStates, number: int) -> str:
    """The page of a point that has no folder yet."""
    point, label = states.of(number), run_arg(states.sweep.run, states.label)
    step = f"slurmopt retry {label}/{number}" if point.state in ENDED else f"slurmopt cancel {label}/{number}"
    lines = [f"{states.label}/{number}: {point.state}"]
    if point.detail:
        lines.append(f"  {'why':10} {point.detail}")
    lines.append(f"  {'sweep':10} {state_counts(states.counts())}")
    return "\n".join([*lines, *listed([f"slurmopt status {label} --watch", step], "next", 10)])
