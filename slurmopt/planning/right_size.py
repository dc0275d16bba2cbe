"""How much of what runs ask for they need, by quantiles of what earlier runs took."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

QUANTILE = 0.9
"""Of the runs, the part that is to have enough."""
_TIME_MARGIN, _MEMORY_MARGIN, _CORES_MARGIN = 1.1, 1.2, 1.2
_TIME_STEP = 300.0
"""Seconds to whose multiples a time is rounded up."""
LEAST = 3
"""Fewer runs tell too little."""


TIME, MEMORY, GPU_MEMORY = "time", "memory", "memory of GPUs"


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """What a run did with its GPUs."""

    each: int
    """On a node."""
    busy: int
    """On the node that had most: GPUs that computed at any time, however little."""
    mean: float
    """Utilisation over time and GPUs, 0 to 1."""
    high: float
    """What the utilisation does not exceed for nine tenths of the time."""


@dataclass(frozen=True, kw_only=True)
class Used:
    """What one run took."""

    seconds: float
    """On its nodes, over all attempts."""
    finished: bool
    """Whether it came to its end. One that did not would have taken longer: its time is a lower bound."""
    memory: float | None = None
    """Peak of a node, in bytes."""
    cores: float | None = None
    """CPU cores that were busy on a node, the mean."""
    gpus: Gpus | None = None
    """None where it was not measured on all GPUs."""
    longest: float | None = None
    """Seconds of its longest attempt."""
    short_of: frozenset[str] = frozenset()
    """What an attempt ended for want of: some of the words below."""


def quantile(values: Sequence[float], share: float = QUANTILE) -> float:
    """The least of the values that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]


def time_quantile(runs: Sequence[Used], share: float = QUANTILE) -> float | None:
    """The same of the times, those that are lower bounds being censored (Kaplan and Meier, 1958); None where so many
    are that it cannot be told."""
    alive, left = 1.0, len(runs)
    for run in sorted(runs, key=lambda run: (run.seconds, not run.finished)):
        if run.finished:
            alive *= (left - 1) / left
            if alive <= 1 - share + 1e-9:
                return run.seconds
        left -= 1
    return None


def time_needed(runs: Sequence[Used]) -> float | None:
    """Seconds to ask for: a tenth more than the 90 % quantile, in steps of five minutes. None for fewer than three runs
    that finished, or where too many did not."""
    if sum(run.finished for run in runs) < LEAST or (found := time_quantile(runs)) is None:
        return None
    return math.ceil(_TIME_MARGIN * found / _TIME_STEP) * _TIME_STEP


def memory_needed(runs: Sequence[Used]) -> float | None:
    """Bytes of a node to ask for: a fifth more than the largest peak, since more ends the run. None for fewer than
    three runs in which it was measured."""
    peaks = [run.memory for run in runs if run.memory is not None]
    return None if len(peaks) < LEAST else _MEMORY_MARGIN * max(peaks)


def cores_needed(runs: Sequence[Used]) -> int | None:
    """CPU cores of a node to ask for: a fifth more than the 90 % quantile of the mean. None as above."""
    cores = [run.cores for run in runs if run.cores is not None]
    return None if len(cores) < LEAST else max(1, math.ceil(_CORES_MARGIN * quantile(cores)))


def gpus_needed(runs: Sequence[Used]) -> int | None:
    """GPUs of a node to ask for: as many as were busy at any time in any run. None as above.

    A mean tells nothing here: GPUs that wait for data, for each other or for a save are needed all the same.
    """
    busy = [run.gpus.busy for run in runs if run.gpus is not None]
    return None if len(busy) < LEAST else max(busy)
