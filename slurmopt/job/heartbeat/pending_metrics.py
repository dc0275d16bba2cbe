"""Metrics that are still on the GPU: copied to host memory without waiting, and read once they have arrived.

`float(loss)` would wait until the GPU has done all that is queued, at each step. Here the training's thread queues a
copy into pinned memory behind the work that makes the number, so that what changes in place afterwards is not in it.
Whoever reads looks at that memory alone, and calls nothing of CUDA's, which another thread may not while a graph is
captured.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from slurmopt.errors import one_line

_SLOTS = 256
_UNKNOWN = 0x7FF8_5107_0B7A_11ED
"""The bits of a NaN that no computation produces. A slot holds them until its number has arrived."""
_PAUSE = 0.005
_NUMBERS = (float, int)


class _Coming(NamedTuple):
    """A number that a GPU still computes."""

    name: str
    slot: int
    step: int | None
    at: float
    shown: bool
    """Whether no newer number of this name is there."""


Arrived = Callable[[float, int, dict[str, float]], None]
"""Takes numbers once they are there: when `progress` was called, with which step, and what it got."""


def number(name: str, value: Any) -> float:
    """Reads a metric. TypeError or ValueError, with its name, where it is none."""
    try:  # `float` of a tensor that requires its gradient warns, as if that were a mistake
        return float(value.detach() if getattr(value, "requires_grad", False) else value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"slurmopt.progress: {one_line(name)[:100]} is no number: {one_line(str(error))}") from None


class PendingMetrics:
    """The training's thread calls `take`; any thread calls `come`. No lock is held during calls of CUDA: if a GPU
    hangs, its queue fills up and the call does not return, but heartbeats must still be written."""

    def __init__(self, counted: Mapping[str, Callable[[str, float], None]] | None = None) -> None:
        """`counted`: name → what is called with each of its values, also with those that newer ones replace."""
        self._counted = counted or {}
        self.arrived: Arrived | None = None
        """What is called with the numbers of each step, also with those that newer ones replace."""
        self._lock = threading.RLock()  # the second SIGTERM ends the rank from inside a signal handler
        self._bits: Any = None
        self._numbers: Any = None
        self._next = 0
        self._coming: deque[_Coming] = deque()

    def take(self, metrics: dict[str, Any], step: int | None = None) -> dict[str, float]:
        """Returns the numbers that are available now, including those that have arrived since. If a GPU is far behind
        and no slot is free, a number is dropped: newer ones follow. Without a `step`, `arrived` is not called."""
        values, at = self.come(), 0.0 if self.arrived is None else time.time()
        here: dict[str, float] = {}
        for name, value in metrics.items():
            if _is_on_gpu(value):
                if len(self._coming) < _SLOTS:
                    self._copy(name, value, step, at)
                continue
            here[name] = number(name, value)
            if name in self._counted:
                self._counted[name](name, here[name])
        if self._coming:
            self._outdate(here)
        self._pass_on(at, step, here)
        return {**values, **here} if values else here

    def _outdate(self, here: Mapping[str, float]) -> None:
        """What still comes under these names is older than the newest value; its slot stays taken until then."""
        with self._lock:
            self._coming = deque(each._replace(shown=each.shown and each.name not in here) for each in self._coming)

    def come(self, seconds: float = 0.0) -> dict[str, float]:
        """The numbers that have arrived since, the last of each name. Waits for them up to `seconds`."""
        values: dict[str, float] = {}
        if not self._coming:
            return values
        arrived: dict[tuple[float, int | None], dict[str, float]] = {}
        deadline = time.monotonic() + seconds
        with self._lock:
            while self._coming:
                coming = self._coming[0]
                if int(self._bits[coming.slot]) != _UNKNOWN:
                    value = float(self._numbers[coming.slot])
                    if coming.shown:
                        values[coming.name] = value
                    if coming.name in self._counted:
                        self._counted[coming.name](coming.name, value)
                    arrived.setdefault((coming.at, coming.step), {})[coming.name] = value
                    self._coming.popleft()
                elif time.monotonic() < deadline:
                    time.sleep(_PAUSE)
                else:
                    break
        for (at, step), numbers in arrived.items():
            self._pass_on(at, step, numbers)
        return values

    def _pass_on(self, at: float, step: int | None, numbers: dict[str, float]) -> None:
        if self.arrived is not None and step is not None:
            self.arrived(at, step, numbers)

    def _copy(self, name: str, value: Any, step: int | None, at: float) -> None:
        torch: Any = sys.modules["torch"]
        if self._bits is None:
            self._bits = _pinned(torch, _SLOTS)
            self._numbers = self._bits.view(torch.float64)
        slot, self._next = self._next, (self._next + 1) % _SLOTS
        self._bits[slot] = _UNKNOWN
        self._numbers[slot].copy_(value.detach().reshape(()).to(torch.float64), non_blocking=True)
        with self._lock:
            self._coming.append(_Coming(name, slot, step, at, True))


def _is_on_gpu(value: Any) -> bool:
    """Whether `value` is a tensor of one number on a GPU. Not a DTensor, such as FSDP2's gradient norm: `float()` reads
    it."""
    if type(value) in _NUMBERS or hasattr(value, "full_tensor") or not hasattr(value, "detach"):
        return False
    return getattr(getattr(value, "device", None), "type", None) == "cuda" and bool(value.numel() == 1)


def _pinned(torch: Any, count: int) -> Any:
    with torch.inference_mode(False):  # else nothing could be copied into it outside of that mode
        return torch.zeros(count, dtype=torch.int64, device="cpu", pin_memory=True)
