"""One measured rate, and what was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Done = Callable[[int], None]
"""Gets numbers of bytes that have been moved."""
Unit = Literal["MiB/s", "operations/s"]
MIB = 1 << 20


@dataclass(frozen=True)
class Rate:
    """A count of bytes or operations, and the seconds that they took."""

    name: str
    unit: Unit
    count: int
    """Bytes, or operations."""
    seconds: float
    how: str
    """Block size, direct I/O, what the time contains."""

    @property
    def per_second(self) -> float:
        """In `unit`."""
        scale = MIB if self.unit == "MiB/s" else 1
        return self.count / scale / self.seconds if self.seconds > 0 else 0.0
