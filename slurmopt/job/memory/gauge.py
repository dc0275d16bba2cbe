"""Measures how much memory this process has in use, and the most since the last look."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from slurmopt.kernel_files import table

_RESET_PEAK = "5"
"""What proc(5) says of clear_refs: the peak of the resident set size becomes the present one."""


class Gauge(Protocol):
    """Numbers are bytes."""

    def now(self) -> int:
        """In use now."""

    def peak(self) -> int:
        """The most in use since the last call of `peak`."""


class GpuGauge:
    """What torch has allocated on the current GPU. It resets torch's peak statistics."""

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda

    def now(self) -> int:
        return int(self._cuda.memory_allocated())

    def peak(self) -> int:
        most = int(self._cuda.max_memory_allocated())
        self._cuda.reset_peak_memory_stats()
        return most


class HostGauge:
    """The resident set size of this process."""

    def now(self) -> int:
        return self._read("VmRSS")

    def peak(self) -> int:
        most = self._read("VmHWM")
        try:
            with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
                file.write(_RESET_PEAK)
        except OSError:  # this kernel cannot forget the peak: only what is there between two looks is seen
            return self.now()
        return most

    @staticmethod
    def _read(name: str) -> int:
        return table("/proc/self/status").get(name, 0) * 1024


def gauge() -> Gauge:
    """That of the GPU where the training uses one."""
    cuda = used_cuda()
    return HostGauge() if cuda is None else GpuGauge(cuda)


def used_cuda() -> Any:
    """`torch.cuda` where the training uses it, else None."""
    cuda = sys.modules.get("torch.cuda")
    return cuda if cuda is not None and cuda.is_initialized() else None
