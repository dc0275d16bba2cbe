"""Curves of a run's metrics: what the rank has kept of this attempt, and then each value that was seen."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurmopt.errors import one_line
from slurmopt.runs.sparkline import sparkline
from slurmopt.runs.status.progress import Progress
from slurmopt.runs.text_table import cut

_MOST_POINTS = 1024
_MOST_METRICS = 4
_WIDEST, _NARROWEST = 60, 8
_LONGEST_NAME = 20


@dataclass
class Curves:
    """The values of each metric, one for each step."""

    _values: dict[str, list[float]] = field(default_factory=dict)
    _step: tuple[int | None, float | None] = (None, None)

    def take(self, progress: Progress) -> None:
        """Adds the metrics of a heartbeat, if its step or its values are new."""
        now = (progress.step, progress.heartbeat if progress.step is None else None)
        if now == self._step or now == (None, None):
            return
        self._step = now
        for name, value in progress.metrics.items():
            values = self._values.setdefault(name, list(progress.before(name)))
            values.append(value)
            if len(values) > _MOST_POINTS:
                values[:] = values[::2]

    def lines(self, width: int) -> list[str]:
        """`loss  █▆▅▃▂▁  1.52 → 0.31`, of the first metrics; none as long as there is only one value."""
        shown = [(name, values) for name, values in self._values.items() if len(values) > 1][:_MOST_METRICS]
        names = [cut(one_line(name), _LONGEST_NAME) for name, _ in shown]
        size = max(map(len, names), default=0)
        room = max(_NARROWEST, min(_WIDEST, width - size - 28))
        return [
            cut(f"  {name:{size}}  {sparkline(_thinned(values, room))}  {values[0]:.4g} → {values[-1]:.4g}", width)
            for name, (_, values) in zip(names, shown, strict=True)
        ]


def _thinned(values: list[float], width: int) -> list[float]:
    """At most `width` of the values, evenly spread, with the last one."""
    if len(values) <= width:
        return values
    return [values[(at + 1) * len(values) // width - 1] for at in range(width)]
