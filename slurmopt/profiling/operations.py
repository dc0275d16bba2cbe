"""The kernels, or without a device the operators, that take most of the time."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slurmopt.profiling.breakdown import is_collective
from slurmopt.profiling.steps import steps_of, window_of, within
from slurmopt.profiling.trace import Event, Trace

_LAUNCH = re.compile(r"(cuda|cu|hip)LaunchKernel\w*")
_TENSOR_CORES = re.compile(r"gemm|nvjet|cutlass|xmma|cudnn.*(conv|sdpa)|flash|wgmma|s\d{4,5}", re.IGNORECASE)
_NOT_TENSOR_CORES = re.compile(r"sgemm|dgemm|simt|gemv", re.IGNORECASE)


@dataclass(frozen=True)
class Operation:
    """A kernel or an operator."""

    name: str
    calls: int
    seconds: float
    """Of all calls together; of an operator without those that it calls itself."""

    @property
    def mean(self) -> float:
        """Seconds of a call."""
        return self.seconds / self.calls


@dataclass(frozen=True)
class Launches:
    """How the host launches kernels."""

    kernels: int
    per_step: float | None
    median_kernel: float
    """Seconds."""
    median_launch: float
    """Seconds that the call takes the host."""
    short: float
    """The part of the kernels that takes less time than its launch."""


def operations(trace: Trace) -> list[Operation]:
    """Kernels or operators in the examined time, the longest first."""
    events = within(trace.events, window_of(trace, steps_of(trace)))
    if trace.has_device:
        rows = [(event.name, event.duration) for event in events if event.category == "kernel"]
    else:
        rows = list(_own_times(event for event in events if event.category == "cpu_op"))
    counted: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for name, duration in rows:
        counted[name][0] += 1
        counted[name][1] += duration
    found = [Operation(name, int(calls), micros / 1e6) for name, (calls, micros) in counted.items()]
    return sorted(found, key=lambda one: (-one.seconds, one.name))


def launches(trace: Trace) -> Launches | None:
    """None without a device, or where the trace has no launches."""
    steps = steps_of(trace)
    events = within(trace.events, window_of(trace, steps))
    calls = {event.args.get("correlation"): event.duration for event in events if _LAUNCH.fullmatch(event.name)}
    kernels = [event for event in events if event.category == "kernel" and not is_collective(event)]
    pairs = [(event.duration, calls[event.args.get("correlation")]) for event in kernels if _known(event, calls)]
    if not pairs:
        return None
    return Launches(
        kernels=len(kernels),
        per_step=len(kernels) / len(steps) if steps else None,
        median_kernel=statistics.median(kernel for kernel, _ in pairs) / 1e6,
        median_launch=statistics.median(launch for _, launch in pairs) / 1e6,
        short=sum(kernel < launch for kernel, launch in pairs) / len(pairs),
    )


def of_tensor_cores(found: Sequence[Operation]) -> list[Operation]:
    """The kernels that use tensor cores by their names."""
    return [one for one in found if _TENSOR_CORES.search(one.name) and not _NOT_TENSOR_CORES.search(one.name)]


def _known(event: Event, calls: dict[object, float]) -> bool:
    return event.args.get("correlation") is not None and event.args["correlation"] in calls


@dataclass
class _Call:
    name: str
    end: float
    own: float


def _own_times(events: Iterable[Event]) -> Iterable[tuple[str, float]]:
    """Name and microseconds of each, without what it calls. Events come by their start, callers first."""
    calls: dict[str, list[_Call]] = defaultdict(list)
    done: list[_Call] = []
    for event in events:
        stack = calls[event.lane]
        while stack and stack[-1].end <= event.start:
            done.append(stack.pop())
        if stack:
            stack[-1].own -= event.duration
        stack.append(_Call(event.name, event.end, event.duration))
    for call in [*done, *(call for stack in calls.values() for call in stack)]:
        yield call.name, max(0.0, call.own)
