"""Divides the time of a rank into compute, exposed communication, copies, and idle time by its reason.

The rules are those of Holistic Trace Analysis for a device: communication and copies count where nothing computes, and
an idle span is put down to the host if the next kernel was launched after the span had begun. Without a device the
operators of the host are the compute, collectives in flight the communication.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slurmopt.profiling.intervals import Span, intersection, total, union, without
from slurmopt.profiling.steps import steps_of, training_thread, window_of, within
from slurmopt.profiling.trace import DEVICE, Event, Trace

COMPUTE, EXPOSED, COPIES = "compute", "exposed communication", "copies"
INPUT, SYNCHRONIZATION, HOST, DEVICE_GAPS, UNKNOWN = "input", "synchronization", "host", "device gaps", "unknown"
_COLLECTIVE_KERNEL = re.compile(r"(nccl|rccl|msccl|oneccl)", re.IGNORECASE)
_COLLECTIVE_SPAN = re.compile(r"(gloo|mpi|ucc|nccl|xccl|hccl):\w+")
_OF_COLLECTIVE = ("c10d::", "_c10d_functional::", "record_param_comms")
_WRAPPER = re.compile(r"autograd::engine::.*|(torch::autograd::)?\w*Backward\d*")
"""What calls operators and hooks, and waits in them."""
_LOADER = re.compile(r"enumerate\(DataLoader\)#.*")
_NO_REASON = re.compile(r"Optimizer\..*|ProfilerStep#\d+|.*(DataParallel|FullyShardedDataParallel)\.forward|FSDP::.*")
"""Marks that say where the host is, but not why nothing runs."""
_WAIT_CALL = re.compile(r"(cuda|hip)(Stream|Device|Event)Synchronize\w*|cu(Stream|Ctx|Event)Synchronize\w*")


@dataclass(frozen=True)
class Breakdown:
    """Where the time of a rank went. Seconds."""

    seconds: float
    """The time that was examined: `steps` whole steps, or the whole trace where there are none."""
    steps: int
    shares: dict[str, float]
    """What the time went into → seconds; the sum is `seconds`. Idle time has the name of a mark of the user's, too."""
    communication: float
    """A collective is in flight or being called, hidden or exposed."""
    has_device: bool
    by_step: list[dict[str, float]]
    """The shares of each step."""

    @property
    def idle(self) -> float:
        """The seconds in which nothing ran."""
        return sum(seconds for name, seconds in self.shares.items() if name not in (COMPUTE, EXPOSED, COPIES))

    @property
    def hidden(self) -> float:
        """The seconds of communication behind compute."""
        return max(0.0, self.communication - self.shares.get(EXPOSED, 0.0))

    @property
    def unexplained(self) -> float:
        """The seconds of which the trace does not tell what they went into."""
        names = (UNKNOWN,) if self.has_device else (UNKNOWN, HOST)
        return sum(self.shares.get(name, 0.0) for name in names)


def breakdown(trace: Trace) -> Breakdown:
    """Divides the whole steps of a trace."""
    steps = steps_of(trace)
    window = window_of(trace, steps)
    events = within(trace.events, window)
    rows = _device_rows(events) if trace.has_device else _host_rows(events)
    collective = union(rows[EXPOSED])
    parts = _exclusive(window, rows)
    idle = without([window], union(span for spans in parts.values() for span in spans))
    reasons = _device_reasons(trace.events, idle) if trace.has_device else {HOST: idle}
    parts |= _named(reasons, events, training_thread(trace))
    parts = {name: spans for name, spans in parts.items() if spans}
    return Breakdown(
        seconds=(window[1] - window[0]) / 1e6,
        steps=len(steps),
        shares={name: total(spans) / 1e6 for name, spans in parts.items()},
        communication=total(intersection(collective, [window])) / 1e6,
        has_device=trace.has_device,
        by_step=[{name: total(_clipped(spans, step)) / 1e6 for name, spans in parts.items()} for step in steps],
    )


def is_collective(event: Event) -> bool:
    """Whether a row is a collective itself: a kernel of NCCL, or the span of an operation of gloo."""
    if event.category == "kernel":
        return "Collective name" in event.args or _COLLECTIVE_KERNEL.match(event.name) is not None
    return event.category == "user_annotation" and _COLLECTIVE_SPAN.match(event.name) is not None


def names_collective(name: str) -> bool:
    """Whether a kernel or an operator of that name is a collective, or waits for one."""
    return name.startswith(_OF_COLLECTIVE) or _COLLECTIVE_KERNEL.match(name) is not None


def is_compute(event: Event) -> bool:
    """Whether an operator of the host computes: it neither calls others nor waits for a collective."""
    return event.category == "cpu_op" and not (
        event.name.startswith(_OF_COLLECTIVE) or _WRAPPER.fullmatch(event.name) is not None
    )


def _device_rows(events: Iterable[Event]) -> dict[str, list[Span]]:
    rows: dict[str, list[Span]] = {COMPUTE: [], EXPOSED: [], COPIES: []}
    for event in events:
        if event.category == "kernel":
            rows[EXPOSED if is_collective(event) else COMPUTE].append((event.start, event.end))
        elif event.category in DEVICE:
            rows[COPIES].append((event.start, event.end))
    return rows


def _host_rows(events: Iterable[Event]) -> dict[str, list[Span]]:
    rows: dict[str, list[Span]] = {COMPUTE: [], EXPOSED: []}
    for event in events:
        if is_compute(event):
            rows[COMPUTE].append((event.start, event.end))
        elif is_collective(event) or event.name.startswith(_OF_COLLECTIVE):
            rows[EXPOSED].append((event.start, event.end))
    return rows


def _exclusive(window: Span, rows: dict[str, list[Span]]) -> dict[str, list[Span]]:
    """Each row's time in the window without that of the rows before it."""
    left, parts = [window], {}
    for name, spans in rows.items():
        joined = union(spans)
        parts[name] = intersection(left, joined)
        left = without(left, joined)
    return parts


def _device_reasons(events: Sequence[Event], idle: Sequence[Span]) -> dict[str, list[Span]]:
    """An idle span up to the launch of the kernel that ends it is the host's, the rest the device's own."""
    calls = [event for event in events if event.category.startswith("cuda_")]
    launches = {event.args["correlation"]: event for event in calls if "correlation" in event.args}
    ends = sorted((event.end, event.start) for event in calls if _WAIT_CALL.fullmatch(event.name))
    rows = [event for event in events if event.category in DEVICE]
    starts = [event.start for event in rows]
    reasons: dict[str, list[Span]] = defaultdict(list)
    for start, end in idle:
        following = bisect_left(starts, end)
        launch = launches.get(rows[following].args.get("correlation")) if following < len(rows) else None
        if launch is None:
            reasons[UNKNOWN].append((start, end))
            continue
        until = min(end, max(start, launch.end))
        if until > start:
            reasons[SYNCHRONIZATION if _waited(ends, start, until) else HOST].append((start, until))
        if end > until:
            reasons[DEVICE_GAPS].append((until, end))
    return reasons


def _waited(ends: Sequence[tuple[float, float]], start: float, until: float) -> bool:
    """Whether the host was waiting for the device when the span began, and could launch nothing until it was idle."""
    at = bisect_right(ends, (start, start))
    return at < len(ends) and ends[at][1] <= start and ends[at][0] <= until


def _named(reasons: dict[str, list[Span]], events: Sequence[Event], thread: str) -> dict[str, list[Span]]:
    """The host's idle time, by the marks that the training thread was in."""
    found = {name: list(spans) for name, spans in reasons.items()}
    for name, spans in _marks(events, thread).items():
        covered = union(spans)
        left = found.get(HOST, [])
        if common := intersection(left, covered):
            found[name] = union([*found.get(name, []), *common])
            found[HOST] = without(left, covered)
    return found


def _marks(events: Sequence[Event], thread: str) -> dict[str, list[Span]]:
    """Name → spans of the marks; the shortest first, as they lie within the others."""
    marks: dict[str, list[Span]] = defaultdict(list)
    for event in events:
        is_mark = event.category == "user_annotation" and event.lane == thread and not is_collective(event)
        if is_mark and not _NO_REASON.fullmatch(event.name):
            marks[INPUT if _LOADER.fullmatch(event.name) else event.name].append((event.start, event.end))
    return dict(sorted(marks.items(), key=lambda item: total(item[1]) / len(item[1])))


def _clipped(spans: Sequence[Span], window: Span) -> list[Span]:
    first = max(0, bisect_right(spans, window) - 1)
    found = []
    for start, end in spans[first:]:
        if start >= window[1]:
            break
        if end > window[0]:
            found.append((max(start, window[0]), min(end, window[1])))
    return found
