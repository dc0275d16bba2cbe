"""How many workers a DataLoader needs: computed from one measurement, confirmed by a few.

Without workers the training makes each batch itself. That tells, without any contention, how long a batch takes (the
service time) and how long a step takes beside it. Workers hide the service time if they are service / step, rounded up,
and one to spare; as far as they compute and do not wait, no more than there are CPUs for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RATE, STEP, WAIT, SERVICE, COMPUTED, CPUS = (
    "tuned_rate", "tuned_step", "tuned_wait", "tuned_service", "tuned_computed", "tuned_cpus",
)  # fmt: skip
"""The metrics of a trial: see `Trial`."""
FAST = 0.97
"""A number is fast enough with this part of the best rate."""
_SPARE = 1
_LESS, _MORE = 0.7, 1.5
_COLD = 0.5
"""Where making a batch waits in later trials less than this part of what it waited in the first one, they found the
samples in the page cache."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A number of workers that was tried. Seconds."""

    workers: int
    rate: float | None = None
    """Samples (tokens where these are told) per second; None where it did not run to its end."""
    step: float | None = None
    """A step without the wait for input."""
    wait: float | None = None
    """The wait for input in each step."""
    service: float | None = None
    """What a batch takes the process that makes it; None where the training does not use `slurmopt.training.loader`."""
    computed: float | None = None
    """Of that the part in which a CPU is used."""
    cpus: float | None = None
    """The CPUs of a rank."""
    error: str | None = None
    """Why it did not run to its end."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the trials of a search have shown."""

    best: Trial
    """The smallest number of workers whose rate is close to the best one."""
    gain: float | None
    """By which its rate is better than without workers; None where that was not tried."""
    cold: int | None
    """The number of workers for samples that are not in the page cache, where the trials show a difference."""


def trial_of(workers: int, metrics: Mapping[str, float]) -> Trial:
    """A trial that has ended well, by its metrics."""
    return Trial(
        workers=workers,
        rate=metrics.get(RATE),
        step=metrics.get(STEP),
        wait=metrics.get(WAIT),
        service=metrics.get(SERVICE),
        computed=metrics.get(COMPUTED),
        cpus=metrics.get(CPUS),
    )


def following(tried: Sequence[Trial], low: int, high: int) -> int | None:
    """The number to try after those that were tried; None if they answer the question, or nothing runs."""
    known = {trial.workers for trial in tried}
    if low not in known:
        return low
    good = [trial for trial in tried if trial.rate is not None]
    if not good:
        return None
    first = min(good, key=lambda trial: trial.workers)
    if first.workers == 0 and not _waits(first):
        return None  # no number of workers makes it faster
    wanted = min(high, max(low, needed(first) or 2))
    if wanted not in known:
        return wanted
    return next((size for size in _beside(good, wanted, low, high) if size not in known), None)


def answer(tried: Sequence[Trial]) -> Answer | None:
    """What the trials show; None if none ran."""
    good = [trial for trial in tried if trial.rate is not None]
    if not good:
        return None
    best = _best(good)
    without = next((trial.rate for trial in good if trial.workers == 0), None)
    gain = None if not without or best.rate is None else best.rate / without - 1
    return Answer(best=best, gain=gain, cold=_cold(good))


def needed(trial: Trial) -> int | None:
    """The workers that hide what a batch costs, by the measurement of one trial; None where it has none."""
    if trial.service is None or not trial.step:
        return None
    wanted = math.ceil(trial.service / trial.step) + _SPARE
    if trial.cpus and trial.computed:
        wanted = min(wanted, round(trial.cpus * trial.service / trial.computed))
    return max(1, wanted)


def _ideal(trial: Trial) -> float | None:
    """The rate without any wait."""
    if trial.rate is None or trial.step is None or trial.wait is None or not trial.step:
        return None
    return trial.rate * (trial.step + trial.wait) / trial.step


def _waits(trial: Trial) -> bool:
    """Whether a faster loader would make it faster; True where that is not known."""
    ideal = _ideal(trial)
    return ideal is None or not _is_fast(trial.rate or 0.0, ideal)


def _is_fast(rate: float, best: float) -> bool:
    return rate >= FAST * best


def _best(good: Sequence[Trial]) -> Trial:
    fastest = max(trial.rate or 0.0 for trial in good)
    fast = [trial for trial in good if _is_fast(trial.rate or 0.0, fastest)]
    return min(fast, key=lambda trial: trial.workers)


def _beside(good: Sequence[Trial], wanted: int, low: int, high: int) -> list[int]:
    """More, unless nothing waits any more, or the trials before show no gain; then fewer."""
    at = next((trial for trial in good if trial.workers == wanted), None)
    more = min(high, max(wanted + 1, math.ceil(_MORE * wanted)))
    fewer = max(low, 1, min(wanted - 1, math.floor(_LESS * wanted)))
    return [*([more] if at is None or _waits(at) else []), *([fewer] if fewer < wanted else [])]


def _cold(good: Sequence[Trial]) -> int | None:
    first, *others = good
    waited = _waited(first)
    later = [seconds for seconds in map(_waited, others) if seconds is not None]
    if waited is None or first.service is None or not later or waited < (1 - _COLD) * first.service:
        return None
    return needed(first) if min(later) < _COLD * waited else None


def _waited(trial: Trial) -> float | None:
    return None if trial.service is None or trial.computed is None else max(0.0, trial.service - trial.computed)
