"""Which settings a DataLoader needs: the number of workers computed from one measurement and confirmed by a few; then
the prefetch factor and pinned memory, as far as they are in the experiment's config.

Without workers the training makes each batch itself. That tells, without any contention, how long a batch takes (the
service time) and how long a step takes beside it. Workers hide the service time if they are service / step, rounded up,
and one to spare; as far as they compute and do not wait, no more than there are CPUs for. More batches that are made
ahead help if the step still waits while CPUs are free: then some batches take much longer than others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from slurmopt.run_folder.loader_costs import workers_needed

RATE, STEP, WAIT, SERVICE, COMPUTED, CPUS, GPU = (
    "tuned_rate", "tuned_step", "tuned_wait", "tuned_service", "tuned_computed", "tuned_cpus", "tuned_gpu",
)  # fmt: skip
"""The metrics of a trial: see `Trial`."""
FAST = 0.97
"""A setting is fast enough with this part of the best rate."""
PREFETCH = 2
"""torch's prefetch factor where none is given."""
_LESS, _MORE = 0.7, 1.5
_BUSY = 0.75
"""CPUs are busy with this part of their time."""
_COLD = 0.5
"""Where making a batch waits in later trials less than this part of what it waited in the first one, they found the
samples in the page cache."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The arguments of a DataLoader that a trial has."""

    workers: int
    prefetch: int | None = None
    """The prefetch factor; None for torch's own."""
    pinned: bool = True


@dataclass(frozen=True, kw_only=True)
class Space:
    """What may be tried."""

    low: int
    """The least number of workers."""
    high: int
    """The largest."""
    prefetch: tuple[int, ...] = ()
    """Prefetch factors; none where the config has none."""
    pinned: bool = True
    """Whether memory is pinned while the others are looked for."""
    pins: bool = False
    """Whether the other may be tried, too."""


@dataclass(frozen=True, kw_only=True)
class Trial(Setting):
    """A setting that was tried. Seconds."""

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
    gpu: bool = False
    """Whether the training uses a GPU: only then memory can be pinned."""
    error: str | None = None
    """Why it did not run to its end."""

    @property
    def setting(self) -> Setting:
        """What was tried."""
        return Setting(workers=self.workers, prefetch=self.prefetch, pinned=self.pinned)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the trials of a search have shown."""

    best: Trial
    """The smallest number of workers and prefetch factor whose rate is close to the best one."""
    gain: float | None
    """By which its rate is better than without workers; None where that was not tried."""
    prefetch_gain: float | None
    """By which the best larger prefetch factor is better than torch's own; None where none was tried."""
    pin_gain: float | None
    """By which pinned memory is better than memory that is not; None where that was not tried."""
    cold: int | None
    """The number of workers for samples that are not in the page cache, where the trials show a difference."""


def trial_of(setting: Setting, metrics: Mapping[str, float]) -> Trial:
    """A trial that has ended well, by its metrics."""
    return Trial(
        **asdict(setting),
        rate=metrics.get(RATE),
        step=metrics.get(STEP),
        wait=metrics.get(WAIT),
        service=metrics.get(SERVICE),
        computed=metrics.get(COMPUTED),
        cpus=metrics.get(CPUS),
        gpu=bool(metrics.get(GPU)),
    )


def following(tried: Sequence[Trial], space: Space) -> Setting | None:
    """The setting to try after those that were tried; None if they answer the question, or nothing runs."""
    of_workers = [trial for trial in tried if _is_plain(trial, space.pinned)]
    if (workers := _following_workers(of_workers, space.low, space.high)) is not None:
        return Setting(workers=workers, pinned=space.pinned)
    good = [trial for trial in of_workers if trial.rate is not None]
    if not good:
        return None
    best = _best(good)
    known = {trial.setting for trial in tried}
    return next((setting for setting in _beyond(best, tried, space) if setting not in known), None)


def _is_plain(trial: Trial, pinned: bool) -> bool:
    return trial.prefetch is None and trial.pinned == pinned


def _following_workers(tried: Sequence[Trial], low: int, high: int) -> int | None:
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


def _beyond(best: Trial, tried: Sequence[Trial], space: Space) -> list[Setting]:
    """What to try with the number of workers that was found: a larger prefetch factor as long as the one before it was
    a gain and the step still waits, then memory that is pinned where it was not, or the other way round."""
    settings, last = [], best
    for factor in space.prefetch if best.workers and not _fills_cpus(best) else ():
        if not _waits(last):
            break
        settings.append(Setting(workers=best.workers, prefetch=factor, pinned=space.pinned))
        found = next((trial for trial in tried if trial.setting == settings[-1]), None)
        if found is None or not _is_gain(found, last):
            break
        last = found
    if space.pins and best.gpu:
        settings.append(Setting(workers=best.workers, prefetch=last.prefetch, pinned=not space.pinned))
    return settings


def _fills_cpus(trial: Trial) -> bool:
    """Whether making the batches keeps the CPUs busy, so that none can be made earlier."""
    if trial.computed is None or trial.step is None or trial.wait is None or not trial.cpus:
        return False
    return trial.computed >= _BUSY * trial.cpus * (trial.step + trial.wait)


def _is_gain(trial: Trial, other: Trial) -> bool:
    return not _is_fast(other.rate or 0.0, trial.rate or 0.0)


def answer(tried: Sequence[Trial]) -> Answer | None:
    """What the trials show; None if none ran."""
    good = [trial for trial in tried if trial.rate is not None]
    of_workers = [trial for trial in good if _is_plain(trial, tried[0].pinned)]
    if not of_workers:
        return None
    workers = _best(of_workers)
    alike = [trial for trial in good if trial.workers == workers.workers and trial.pinned == workers.pinned]
    best = min((trial for trial in alike if not _is_gain(_fastest(alike), trial)), key=_prefetch)
    other = next((trial for trial in good if trial.setting == replace(best.setting, pinned=not best.pinned)), None)
    pinned, bare = (best, other) if best.pinned else (other, best)
    without = next((trial for trial in of_workers if trial.workers == 0), None)
    ahead = [trial for trial in alike if trial.prefetch is not None]
    return Answer(
        best=best if other is None or not _is_gain(other, best) else other,
        gain=None if without is None else _gain(best, without),
        prefetch_gain=_gain(_fastest(ahead), workers) if ahead else None,
        pin_gain=None if pinned is None or bare is None else _gain(pinned, bare),
        cold=_cold(of_workers),
    )


def _prefetch(trial: Trial) -> int:
    return trial.prefetch or PREFETCH


def _fastest(trials: Sequence[Trial]) -> Trial:
    return max(trials, key=lambda trial: trial.rate or 0.0)


def _gain(trial: Trial, other: Trial) -> float | None:
    return None if not trial.rate or not other.rate else trial.rate / other.rate - 1


def needed(trial: Trial) -> int | None:
    """The workers that hide what a batch costs, by the measurement of one trial; None where it has none."""
    if trial.service is None or not trial.step:
        return None
    return workers_needed(trial.service, trial.step, trial.computed, trial.cpus)


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
