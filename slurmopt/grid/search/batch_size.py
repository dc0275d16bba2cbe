"""Which batch sizes to try, and what they show: the largest that fits into memory, and the smallest that is fast.

The memory of a training is nearly linear in the batch: a + k·batch. Two small sizes give a line, the line a prediction,
and one trial the proof. Between the least size and the largest, the rate is then looked up where it bends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

RATE, MEMORY, LIMIT = "tuned_rate", "tuned_memory", "tuned_limit"
"""The metrics of a trial: work per second, and bytes of a rank."""
MARGIN = 0.10
"""The part of the memory that stays free: later steps have longer samples, and fragments."""
FAST = 0.95
"""A size is fast enough with this part of the best rate."""
_CLOSE = 1.1
"""Sizes whose quotient is below this are not told apart."""
_COARSE = 1.5
"""The same where only the rate is looked for."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A batch size that was tried."""

    size: int
    rate: float | None = None
    """Samples (tokens where these are told) per second; None where it did not run to its end."""
    memory: float | None = None
    """Peak of a rank, in bytes; None where it is not known."""
    limit: float | None = None
    """The bytes that a rank can have; None where it is not known."""
    error: str | None = None
    """Why it did not run to its end."""
    too_large: bool = False
    """Whether that was for want of memory."""

    @property
    def fits(self) -> bool:
        """Whether it ran, and left the margin."""
        if self.rate is None:
            return False
        return self.memory is None or self.limit is None or self.memory <= (1 - MARGIN) * self.limit


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the trials of a search have shown."""

    largest: Trial
    """The largest size that fits."""
    best: Trial
    """The smallest size whose rate is close to the best one."""
    per_unit: float | None
    """The bytes that each unit of the batch takes near the largest size; None where that is not known."""


def following(tried: Sequence[Trial], low: int, high: int, step: int) -> int | None:
    """The size to try after those that were tried; None if they answer the question, if the least one does not fit, or
    if one `failed`. Sizes are `low` plus multiples of `step`, up to `high`."""
    if failed(tried) is not None:
        return None
    sizes = {trial.size for trial in tried}
    good = sorted((trial for trial in tried if trial.fits), key=lambda trial: trial.size)
    if low not in sizes:
        return low
    if not good:
        return None

    def rounded(size: float) -> int:
        return low + max(0, math.floor((min(size, high) - low) / step)) * step

    size = _larger(tried, good, rounded)
    if size is None:
        size = _faster(good, rounded)
    return size if size is not None and size not in sizes else None


def failed(tried: Sequence[Trial]) -> Trial | None:
    """A trial that failed, and not for want of memory: it tells nothing of sizes, and ends the search."""
    return next((trial for trial in tried if trial.error is not None and not trial.too_large), None)


def answer(tried: Sequence[Trial]) -> Answer | None:
    """What the trials show; None if none fits, or one failed by something else than memory."""
    if failed(tried) is not None:
        return None
    good = sorted((trial for trial in tried if trial.fits), key=lambda trial: trial.size)
    if not good:
        return None
    line = _line(tried)
    return Answer(largest=good[-1], best=_best(good), per_unit=None if line is None else line[1])


def rate_text(trial: Trial) -> str:
    """Its rate for people; empty where it has none."""
    if trial.rate is None:
        return ""
    return f"{trial.rate:,.0f}" if trial.rate >= 1000 else f"{trial.rate:.4g}"


def _larger(tried: Sequence[Trial], good: Sequence[Trial], rounded: Callable[[float], int]) -> int | None:
    """A size above all that fit, and below all that do not; None if the largest is known well enough."""
    largest, ceiling = good[-1].size, min((trial.size for trial in tried if not trial.fits), default=None)
    if len(good) == 1:
        wanted = 2.0 * largest
    else:
        line, limit = _line(tried), good[-1].limit
        wanted = 2.0 * largest if line is None or limit is None else ((1 - MARGIN) * limit - line[0]) / line[1]
    if ceiling is not None and wanted >= ceiling:
        wanted = math.sqrt(largest * ceiling)
        if ceiling < _CLOSE * largest:
            return None
    size = rounded(wanted)
    return size if size > largest and (size >= _CLOSE * largest or size == rounded(math.inf)) else None


def _faster(good: Sequence[Trial], rounded: Callable[[float], int]) -> int | None:
    """A size where the rate may bend; None if that is known well enough."""
    best = _best(good)
    slower = [trial.size for trial in good if trial.size < best.size]
    if not slower or best.size < _COARSE * slower[-1]:
        return None
    return rounded(math.sqrt(slower[-1] * best.size))


def _best(good: Sequence[Trial]) -> Trial:
    fastest = max(trial.rate or 0.0 for trial in good)
    return next(trial for trial in good if (trial.rate or 0.0) >= FAST * fastest)


def _line(tried: Sequence[Trial]) -> tuple[float, float] | None:
    """Through the two largest sizes whose memory is known, those that left too little of it included: the memory may
    bend, and the answer is near them."""
    known = sorted((trial.size, trial.memory) for trial in tried if trial.memory is not None)[-2:]
    if len(known) < 2:
        return None
    (first, least), (second, most) = known
    slope = (most - least) / (second - first)
    return (most - slope * second, slope) if slope > 0 else None
