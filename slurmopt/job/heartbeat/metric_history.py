"""The values of a training's metrics since the attempt began, thinned: a curve for those who look later."""

from __future__ import annotations

from collections.abc import Mapping

_METRICS = 6
"""The first so many names; a training may report thousands."""
_VALUES = 32
"""Up to twice as many are kept of each metric, evenly spread over its reports."""


class MetricHistory:
    """Of each metric the value of every n-th report. n doubles when there are too many."""

    def __init__(self) -> None:
        self._of: dict[str, _Thinned] = {}

    def add(self, numbers: Mapping[str, float]) -> None:
        """Takes the numbers of a report."""
        for name, value in numbers.items():
            thinned = self._of.get(name)
            if thinned is None:
                if len(self._of) == _METRICS:
                    continue
                thinned = self._of[name] = _Thinned()
            thinned.add(value)

    def values(self) -> dict[str, list[float]]:
        """A copy of what is kept, with six digits."""
        return {name: [float(f"{value:.6g}") for value in thinned.values] for name, thinned in self._of.items()}


class _Thinned:
    def __init__(self) -> None:
        self.values: list[float] = []
        self._every, self._seen = 1, 0

    def add(self, value: float) -> None:
        if self._seen % self._every == 0:
            self.values.append(value)
            if len(self.values) == 2 * _VALUES:
                del self.values[1::2]
                self._every *= 2
        self._seen += 1
