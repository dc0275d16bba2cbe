"""Collectives of several ranks side by side: which rank starts them last, and lets the others wait."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slurmopt.profiling.breakdown import is_collective
from slurmopt.profiling.steps import steps_of, window_of, within
from slurmopt.profiling.trace import Event, Trace


@dataclass(frozen=True)
class Collective:
    """One collective as several ranks saw it."""

    name: str
    starts: dict[int, float]
    """Rank → seconds after the first rank's start."""

    @property
    def last(self) -> int:
        """The rank that started last: the others waited for it."""
        return max(self.starts, key=lambda rank: self.starts[rank])

    @property
    def lateness(self) -> float:
        """Seconds from the median start of the others to that of the last one."""
        return self.starts[self.last] - statistics.median(
            start for rank, start in self.starts.items() if rank != self.last
        )


@dataclass(frozen=True)
class Straggler:
    """The rank that starts most collectives last."""

    rank: int
    last: int
    """How many it starts last, of `collectives`."""
    collectives: int
    waited: float
    """Seconds that the others waited for it in all of them."""
    slowest: str
    """The collective by which most of that was lost."""


def joined(traces: dict[int, Trace]) -> list[Collective]:
    """The collectives that all of the ranks have in their traces, in order.

    NCCL numbers those of each process group. Others belong together if they have one name and end at about the same
    time. Clocks of nodes differ: as a collective ends on all ranks together, the median difference of the ends is
    taken for that of the clocks.
    """
    if len(traces) < 2:
        return []
    rows = {rank: _rows(trace) for rank, trace in traces.items()}
    first = min(rows, key=lambda rank: len(rows[rank]))
    found: dict[int, dict[int, float]] = {at: {first: row.start} for at, row in enumerate(rows[first])}
    for rank in set(rows) - {first}:
        pairs = _pairs(rows[first], rows[rank])
        clock = statistics.median(theirs.end - rows[first][at].end for at, theirs in pairs) if pairs else 0.0
        for at, theirs in pairs:
            found[at][rank] = theirs.start - clock
    whole = [(at, starts) for at, starts in found.items() if len(starts) == len(rows)]
    return [Collective(rows[first][at].name, _from_first(starts)) for at, starts in whole]


def straggler(collectives: Sequence[Collective]) -> Straggler | None:
    """The rank that is last most often; None without collectives."""
    if not collectives:
        return None
    rank, last = Counter(one.last for one in collectives).most_common(1)[0]
    own = [one for one in collectives if one.last == rank]
    lost: Counter[str] = Counter()
    for one in own:
        lost[one.name] += one.lateness  # type: ignore[assignment]  # seconds
    return Straggler(rank, last, len(collectives), sum(one.lateness for one in own), lost.most_common(1)[0][0])


def _rows(trace: Trace) -> list[Event]:
    """By the clock of the epoch, in microseconds since an instant that all traces of a capture share."""
    events = within(trace.events, window_of(trace, steps_of(trace)))
    kept = [event for event in events if is_collective(event) and (event.category == "kernel") == trace.has_device]
    shift = trace.base % 1e6 * 1e6
    return [event._replace(start=event.start + shift, end=event.end + shift) for event in kept]


def _pairs(ours: list[Event], theirs: list[Event]) -> list[tuple[int, Event]]:
    keys = [_key(event) for event in ours]
    if None not in keys and len(set(keys)) == len(keys):
        numbered = {_key(event): event for event in theirs}
        return [(at, numbered[key]) for at, key in enumerate(keys) if key in numbered]
    return _by_ends(ours, theirs)


def _key(event: Event) -> tuple[Any, ...] | None:
    if event.args.get("Seq") is None:
        return None
    return event.name.split("(")[0], str(event.args.get("Process Group Name")), str(event.args["Seq"])


def _by_ends(ours: list[Event], theirs: list[Event]) -> list[tuple[int, Event]]:
    """Each with the one of the same name that ends next to it, if that one has it for its next, too."""
    ends = {
        name: sorted((event.end, at) for at, event in enumerate(theirs) if event.name == name) for name in _names(ours)
    }
    own = {
        name: sorted((event.end, at) for at, event in enumerate(ours) if event.name == name) for name in _names(ours)
    }
    pairs = []
    for at, event in enumerate(ours):
        other = _nearest(ends[event.name], event.end)
        if other is not None and _nearest(own[event.name], theirs[other].end) == at:
            pairs.append((at, theirs[other]))
    return pairs


def _names(events: list[Event]) -> set[str]:
    return {event.name for event in events}


def _nearest(ends: list[tuple[float, int]], end: float) -> int | None:
    at = bisect_left(ends, (end, 0))
    near = ends[max(0, at - 1) : at + 1]
    return min(near, key=lambda one: abs(one[0] - end))[1] if near else None


def _from_first(starts: dict[int, float]) -> dict[int, float]:
    first = min(starts.values())
    return {rank: (start - first) / 1e6 for rank, start in sorted(starts.items())}
