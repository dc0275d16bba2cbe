"""A row of values as a row of blocks, for terminals."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

_BLOCKS, _ASCII = "▁▂▃▄▅▆▇█", "_.-=+*#@"


def sparkline(values: Sequence[float | None], least: float | None = None, most: float | None = None) -> str:
    """One character for each value, from `least` to `most` (by default those of the values): a blank where there is no
    value, `!` for one that is not finite. Values that are all the same are in the middle, or at a given `least`."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    low = min(known, default=0.0) if least is None else least
    span = (max(known, default=0.0) if most is None else most) - low
    marks = _BLOCKS if _is_printable(_BLOCKS) else _ASCII

    def mark(value: float | None) -> str:
        if value is None:
            return " "
        if not math.isfinite(value):
            return "!"
        if span <= 0 or not math.isfinite(span):
            return marks[0 if least is not None else len(marks) // 2]
        return marks[min(len(marks) - 1, int(len(marks) * min(1.0, max(0.0, (value - low) / span))))]

    return "".join(map(mark, values))


def _is_printable(text: str) -> bool:
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")  # that of a full-screen program has none
    except UnicodeEncodeError:
        return False
    return True
