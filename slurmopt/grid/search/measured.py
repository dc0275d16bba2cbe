"""The metrics of a trial that can be measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_LARGEST = 1e18
"""No measurement of a trial is above that."""


def measured(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Those of `metrics` that can be; the files of a run folder may have been edited."""
    return {
        name: float(value)
        for name, value in metrics.items()
        if isinstance(value, (int, float)) and 0 <= value <= _LARGEST and math.isfinite(value)
    }
