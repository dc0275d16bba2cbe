"""The steps within a trace."""

from __future__ import annotations

import itertools
import re
from collections import Counter

from slurmopt.profiling.intervals import Span
from slurmopt.profiling.trace import DEVICE, Event, Trace

OPTIMIZER = "Optimizer.step#"
"""torch marks each step of an optimizer with this and the name of its class."""
_PROFILER_STEP = re.compile(r"ProfilerStep#\d+")


def training_thread(trace: Trace) -> str:
    """The thread that trains: where the optimizer steps; else the one with most operators."""
    marked = Counter(event.lane for event in trace.events if event.name.startswith(OPTIMIZER))
    counted = marked or Counter(event.lane for event in trace.events if event.category == "cpu_op")
    return counted.most_common(1)[0][0] if counted else ""


def steps_of(trace: Trace) -> list[Span]:
    """The whole steps that the trace has: those of `ProfilerStep#N`, else from the end of one optimizer step to that of
    the next. Empty where it has neither."""
    thread = training_thread(trace)
    marks = [event for event in trace.events if event.category == "user_annotation" and event.lane == thread]
    given = [(event.start, event.end) for event in marks if _PROFILER_STEP.fullmatch(event.name)]
    if given:
        return given
    optimizers = Counter(event.name for event in marks if event.name.startswith(OPTIMIZER))
    if not optimizers:
        return []
    first = min(optimizers, key=lambda name: (optimizers[name], name))  # of several optimizers, such as a GAN's
    ends = [event.end for event in marks if event.name == first]
    return list(itertools.pairwise(ends))


def window_of(trace: Trace, steps: list[Span]) -> Span:
    """The time that is examined: all whole steps, else everything."""
    if steps:
        return steps[0][0], steps[-1][1]
    rows = [event for event in trace.events if event.category in DEVICE] or trace.events
    return min(event.start for event in rows), max(event.end for event in rows)


def within(events: list[Event], window: Span) -> list[Event]:
    """Those that overlap with the window."""
    return [event for event in events if event.end > window[0] and event.start < window[1]]
