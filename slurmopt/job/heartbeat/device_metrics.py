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
from typing import Any

_SLOTS = 256
_UNKNOWN = 0x7FF8_5107_0B7A_11ED
"""The bits of a NaN that no computation produces. A slot holds them until its number has arrived."""
_PAUSE = 0.005
_NUMBERS = (float, int)


class DeviceMetrics:
    """The training's thread calls `take`; any thread calls `come`. No lock is held during calls of CUDA: if a GPU
    hangs, its queue fills up and the call does not return, but heartbeats must still be written."""

    def __init__(self, counted: Mapping[str, Callable[[str, float], None]] | None = None) -> None:
        """`counted`: name → what is called with each of its values, also with those that newer ones replace."""
        self._counted = counted or {}
        self._lock = threading.RLock()  # the second SIGTERM ends the rank from inside a signal handler
        self._bits: Any = None
        self._numbers: Any = None
        self._next = 0
        self._coming: deque[tuple[str | None, int]] = deque()

    def take(self, metrics: dict[str, Any]) -> dict[str, float]:
        """Returns the numbers that are available now, including those that have arrived since. If a GPU is far behind
        and no slot is free, a number is dropped: newer ones follow."""
        values = self.come()
        for name, value in metrics.items():
            if _is_on_gpu(value):
                if len(self._coming) < _SLOTS:
                    self._copy(name, value)
                continue
            values[name] = float(value)
            if name in self._counted:
                self._counted[name](name, values[name])
            elif self._coming:
                self._outdate(name)
        return values

    def _outdate(self, name: str) -> None:
        """What still comes under this name is older than the newest value; its slot stays taken until then."""
        with self._lock:
            self._coming = deque((None if each == name else each, slot) for each, slot in self._coming)

    def come(self, seconds: float = 0.0) -> dict[str, float]:
        """The numbers that have arrived since, the last of each name. Waits for them up to `seconds`."""
        values: dict[str, float] = {}
        if not self._coming:
            return values
        deadline = time.monotonic() + seconds
        with self._lock:
            while self._coming:
                name, slot = self._coming[0]
                if int(self._bits[slot]) != _UNKNOWN:
                    if name is not None:
                        values[name] = float(self._numbers[slot])
                        if name in self._counted:
                            self._counted[name](name, values[name])
                    self._coming.popleft()
                elif time.monotonic() < deadline:
                    time.sleep(_PAUSE)
                else:
                    break
        return values

    def _copy(self, name: str, value: Any) -> None:
        torch: Any = sys.modules["torch"]
        if self._bits is None:
            self._bits = _pinned(torch, _SLOTS)
            self._numbers = self._bits.view(torch.float64)
        slot, self._next = self._next, (self._next + 1) % _SLOTS
        self._bits[slot] = _UNKNOWN
        self._numbers[slot].copy_(value.detach().reshape(()).to(torch.float64), non_blocking=True)
        with self._lock:
            self._coming.append((name, slot))


def _is_on_gpu(value: Any) -> bool:
    """Whether `value` is a tensor of one number on a GPU. Not a DTensor, such as FSDP2's gradient norm: `float()` reads
    it."""
    if type(value) in _NUMBERS or hasattr(value, "full_tensor") or not hasattr(value, "detach"):
        return False
    return getattr(getattr(value, "device", None), "type", None) == "cuda" and bool(value.numel() == 1)


def _pinned(torch: Any, count: int) -> Any:
    with torch.inference_mode(False):  # else nothing could be copied into it outside of that mode
        return torch.zeros(count, dtype=torch.int64, device="cpu", pin_memory=True)
