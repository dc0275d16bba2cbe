"""Turns counters into rates per second."""

from __future__ import annotations

import time
from collections.abc import Mapping


class Rates:
    """The last value of each counter, and when it was read by the monotonic clock."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def of(self, counters: Mapping[str, float], now: float | None = None) -> dict[str, float]:
        """The rates since the last call. A counter that is new, or has fallen because it was reset, has none."""
        now = time.monotonic() if now is None else now
        rates: dict[str, float] = {}
        for name, value in counters.items():
            before = self._last.get(name)
            self._last[name] = value, now
            if before is not None and value >= before[0] and now > before[1]:
                rates[name] = (value - before[0]) / (now - before[1])
        return rates
