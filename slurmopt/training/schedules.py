"""Learning rate schedules: pure functions of how far a training is, the same on any world size and after any restart.

Each function returns another that maps a number of steps, or of samples, to the factor of the learning rate for the
next step. `Steps` calls it with the steps that were taken, so that a step that was skipped does not count. All numbers
of one schedule have the same unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import TYPE_CHECKING, Any

from slurmopt.errors import JobError

if TYPE_CHECKING:
    import torch

Schedule = Callable[[float], float]
"""Maps steps, or samples, to a factor."""


def constant(*, warmup: float = 0) -> Schedule:
    """Rises linearly over `warmup`, then stays at 1."""
    _check(warmup=warmup)
    return lambda done: _risen(done, warmup)


def linear(total: float, *, warmup: float = 0, floor: float = 0.0) -> Schedule:
    """Rises linearly over `warmup`, then falls linearly to `floor` at `total`, where it stays."""
    _check(total=total, warmup=warmup, floor=floor)
    return lambda done: _risen(done, warmup) * _fallen(1 - _share(done, warmup, total), floor)


def cosine(total: float, *, warmup: float = 0, floor: float = 0.0) -> Schedule:
    """Rises linearly over `warmup`, then falls as half a cosine to `floor` at `total`, where it stays.

    Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts" (2017), without restarts.
    """
    _check(total=total, warmup=warmup, floor=floor)
    return lambda done: _risen(done, warmup) * _fallen((1 + math.cos(math.pi * _share(done, warmup, total))) / 2, floor)


def wsd(total: float, *, warmup: float = 0, decay: float, floor: float = 0.0) -> Schedule:
    """Warm-up, stable, decay: rises linearly over `warmup`, stays at 1, and falls linearly to `floor` over the last
    `decay` before `total`. Its stable part goes on unchanged where a later attempt has a larger `total`.

    Hu et al., "MiniCPM: Unveiling the Potential of Small Language Models" (2024).
    """
    _check(total=total, warmup=warmup, floor=floor, decay=decay)
    if warmup + decay > total:
        raise JobError(f"warmup {warmup:g} and decay {decay:g} are more than total {total:g}")
    return lambda done: _risen(done, warmup) * _fallen(1 - _share(done, total - decay, total), floor)


def for_batch(batch: int, base: int, rule: str) -> float:
    """The factor of a learning rate that was found with global batches of `base` samples, for those of `batch`.

    `rule`: `linear` for SGD (Goyal et al., "Accurate, Large Minibatch SGD", 2017), `sqrt` for Adam (Malladi et al., "On
    the SDEs and Scaling Rules for Adaptive Gradient Algorithms", 2022).
    """
    if batch < 1 or base < 1:
        raise JobError(f"a global batch of {min(batch, base)} samples; valid: 1 or more")
    if rule not in ("linear", "sqrt"):
        raise JobError(f"rule is {rule!r}; valid: linear (for SGD), sqrt (for Adam)")
    return batch / base if rule == "linear" else math.sqrt(batch / base)


def rising_batch(end: int, *, start: int, over: int, increment: int | None = None) -> Callable[[int], int]:
    """Global batches that rise from `start` to `end` samples while `over` samples are consumed, in equal stretches of
    samples, by `increment` (default: `start`) each time. For `global_batch` of a ResumableSampler.

    Smith et al., "Don't Decay the Learning Rate, Increase the Batch Size" (2018); the shape is that of GPT-3.
    """
    step = start if increment is None else increment
    for name, value in (("start", start), ("end", end), ("over", over), ("increment", step)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise JobError(f"rising_batch: {name} is {value!r}; valid: a number of samples from 1 on")
    if start > end or (end - start) % step:
        raise JobError(
            f"rising_batch: from {start} to {end} by {step}: valid is an end that a whole number of steps reaches"
        )
    rises = (end - start) // step
    return lambda seen: min(end, start + step * (seen * (rises + 1) // over)) if rises else end


class ScheduledRate:
    """The learning rates of an optimizer as a function of the steps that were taken: of each group its first rate times
    the factor. It has the `step` and `state_dict` of torch's schedulers."""

    def __init__(self, optimizer: torch.optim.Optimizer, schedule: Schedule) -> None:
        self._optimizer, self._schedule = optimizer, schedule
        self._first = [group.setdefault("initial_lr", group["lr"]) for group in optimizer.param_groups]
        self._count = 0
        self._set()

    def step(self) -> None:
        """One more step was taken."""
        self._count += 1
        self._set()

    def state_dict(self) -> dict[str, Any]:
        """The steps that were taken."""
        return {"count": self._count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there, with the rates and the schedule of this attempt's config."""
        self._count = int(state["count"])
        self._set()

    def _set(self) -> None:
        factor = float(self._schedule(self._count))
        if not 0 <= factor < math.inf:  # also where it is NaN, which would make the weights NaN
            raise JobError(f"the schedule is {factor} after {self._count} steps; valid: a factor from 0 on")
        for group, first in zip(self._optimizer.param_groups, self._first, strict=True):
            group["lr"] = first * factor


def _risen(done: float, warmup: float) -> float:
    return min(1.0, (done + 1) / warmup) if warmup else 1.0


def _share(done: float, first: float, total: float) -> float:
    """How far `done` is from `first` to `total`."""
    return min(1.0, max(0.0, (done - first) / (total - first))) if total > first else float(done >= total)


def _fallen(left: float, floor: float) -> float:
    return floor + (1 - floor) * left


def _check(**numbers: float) -> None:
    for name, value in numbers.items():
        most = 1.0 if name == "floor" else math.inf
        is_number = isinstance(value, float | Real) and math.isfinite(value)
        if not is_number or not 0 <= value <= most or (name == "total" and not value):
            raise JobError(f"{name} is {value!r}; valid: {'0 to 1' if name == 'floor' else 'a number of steps'}")
    if numbers.get("warmup", 0) > numbers.get("total", math.inf):
        raise JobError(f"warmup {numbers['warmup']:g} is more than total {numbers['total']:g}")
