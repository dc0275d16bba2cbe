"""The most memory in use during nested spans, such as the forward pass and the modules in it."""

from __future__ import annotations

from dataclasses import dataclass

from slurmopt.job.memory.gauge import Gauge


@dataclass
class Peak:
    """All spans of one name. Numbers are bytes."""

    name: str
    calls: int = 0
    most: int = 0
    """The most that was in use during one of them."""
    over: int = 0
    """The most by which that was more than at its start."""
    kept: int = 0
    """The most by which a span ended with more in use than it began with: activations, of a module's forward pass."""


@dataclass
class _Open:
    name: str
    start: int
    most: int


class Peaks:
    """Spans that nest. A gauge has one peak, so each begin and end reads it, and starts it anew, for all open spans."""

    def __init__(self, gauge: Gauge) -> None:
        self.gauge = gauge
        self._open: list[_Open] = []
        self.found: dict[str, Peak] = {}
        self.most = gauge.now()
        gauge.peak()

    def enter(self, name: str) -> None:
        """A span begins."""
        self._settle()
        now = self.gauge.now()
        self._open.append(_Open(name, now, now))

    def leave(self) -> None:
        """The innermost span ends."""
        self._settle()
        span, now = self._open.pop(), self.gauge.now()
        peak = self.found.setdefault(span.name, Peak(span.name))
        peak.calls += 1
        peak.most = max(peak.most, span.most)
        peak.over = max(peak.over, span.most - span.start)
        peak.kept = max(peak.kept, now - span.start)

    def leave_all(self, depth: int = 0) -> None:
        """All spans end, but for the `depth` outermost."""
        while len(self._open) > depth:
            self.leave()

    def restart(self) -> None:
        """Forgets what was found, and what open spans have needed so far."""
        self.gauge.peak()
        self.most = now = self.gauge.now()
        self.found.clear()
        for span in self._open:
            span.start = span.most = now

    @property
    def depth(self) -> int:
        """How many spans are open."""
        return len(self._open)

    def _settle(self) -> None:
        peak = self.gauge.peak()
        self.most = max(self.most, peak)
        for span in self._open:
            span.most = max(span.most, peak)
