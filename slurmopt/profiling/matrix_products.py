"""How fast the matrix products of a trace are, beside what the GPU can do: the roofline.

Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model for Multicore Architectures" (2009):
a kernel with F operations on B bytes of memory reaches at most min(peak, F/B x bandwidth). F of a product of m x k by
k x n is 2 m n k, and B, if each matrix is moved once, its elements' size times (m k + k n + m n).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurmopt.gpu_peaks import dense_bf16_tflops, memory_bandwidth
from slurmopt.profiling.steps import steps_of, window_of, within
from slurmopt.profiling.trace import MATRIX_OPERATORS, Event, Trace

_TYPES = {"c10::BFloat16": ("bf16", 2), "c10::Half": ("fp16", 2), "float": ("fp32", 4), "double": ("fp64", 8)}
"""How a trace calls the type of a tensor → its name and the bytes of an element."""
_LIKE_BF16 = ("bf16", "fp16")
"""Types with the peak of bf16. fp32 may be computed in TF32 or not, which a trace does not tell."""
_MOST = 1 << 40
_Shape = tuple[str, int, int, int, int, str, int]
"""Operator, batch, m, n, k, type and bytes of an element."""


@dataclass(frozen=True)
class Product:
    """All products of one shape and type."""

    operator: str
    batch: int
    m: int
    n: int
    k: int
    type: str
    element: int
    """Bytes of an element."""
    calls: int
    seconds: float
    """Of the kernels, all calls together."""

    @property
    def operations(self) -> float:
        """Of one call."""
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def intensity(self) -> float:
        """Operations for each byte of memory."""
        return self.operations / (self.element * self.batch * (self.m * self.k + self.k * self.n + self.m * self.n))

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.operations * self.calls / self.seconds

    def peak(self, device: str | None) -> float | None:
        """What the GPU can do with this type, in operations per second; None where that is not known."""
        bf16 = None if device is None else dense_bf16_tflops(device)
        return None if bf16 is None or self.type not in _LIKE_BF16 else bf16 * 1e12

    def limit(self, device: str | None) -> float | None:
        """What it allows at this intensity."""
        peak, bandwidth = self.peak(device), None if device is None else memory_bandwidth(device)
        return None if peak is None or bandwidth is None else min(peak, self.intensity * bandwidth)


def products(trace: Trace) -> list[Product]:
    """Those whose shapes the trace has, in the examined time; the longest first."""
    shapes: dict[int, _Shape] = {}
    for event in trace.events:
        if event.name in MATRIX_OPERATORS and (number := _operator(event)) is not None:
            shape = _shape(event.name, event.args)
            if shape is not None:
                shapes[number] = shape
    calls: dict[_Shape, set[int]] = defaultdict(set)
    seconds: dict[_Shape, float] = defaultdict(float)
    for event in within(trace.events, window_of(trace, steps_of(trace))):
        number = _operator(event) if event.category == "kernel" else None
        if number is not None and number in shapes:
            calls[shapes[number]].add(number)
            seconds[shapes[number]] += event.duration / 1e6
    made = [Product(*shape, len(calls[shape]), spent) for shape, spent in seconds.items() if spent > 0]
    return sorted(made, key=lambda one: (-one.seconds, one.operator, one.m, one.n, one.k))


def _operator(event: Event) -> int | None:
    """The number of the operator, or of that which launched the kernel."""
    number = event.args.get("External id")
    return number if isinstance(number, int) else None


def _shape(name: str, args: Mapping[str, Any]) -> _Shape | None:
    """None if the operator's inputs are no two matrices."""
    first, last = MATRIX_OPERATORS[name]
    dims, types = args.get("Input Dims"), args.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list) or max(first, last) >= min(len(dims), len(types)):
        return None
    left, right, kind = _sizes(dims[first]), _sizes(dims[last]), _TYPES.get(str(types[first]))
    if left is None or right is None or kind is None or len(left) != len(right):
        return None
    (*batch, m, k), (*_, again, n) = left, right
    return (name, math.prod(batch), m, n, k, *kind) if k == again else None


def _sizes(value: Any) -> Sequence[int] | None:
    """The sizes of two or three dimensions. Anybody may have written the file."""
    if not isinstance(value, list) or len(value) not in (2, 3):
        return None
    if any(isinstance(size, bool) or not isinstance(size, int) or not 0 < size < _MOST for size in value):
        return None
    return value
