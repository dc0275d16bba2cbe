"""The gradient noise scale: how much the gradients of samples differ, as the batch size at which that begins to matter.

McCandlish et al., "An Empirical Model of Large-Batch Training" (2018), appendix A.1: a mean over b samples of
gradients with the mean G and the covariance Σ has E|g|² = |G|² + tr Σ / b. From the parts of a global batch of B
samples, of which m is the mean of |g|², and from the whole, M = |g|²:

    tr Σ = (m - M) / (1/b - 1/B)      |G|² = M - tr Σ / B      both unbiased
    noise scale = tr Σ / |G|²         in samples

Both are noisy, and |G|² may be negative: they are averaged over steps first, then divided. The interval is that of
Fieller, "Some Problems in Interval Estimation" (1954), for the ratio of two means.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch
import torch.distributed as dist

from slurmopt.errors import JobError

_WINDOW = 200
"""Measurements that count: the noise grows while a training goes on."""
_FEWEST = 8
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A noise scale in samples, or tokens, with the ends of its 95 % interval; `high` may be infinite."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        high = "any number" if math.isinf(self.high) else f"{self.high:,.3g}"
        return f"{self.value:,.3g} ({self.low:,.3g} to {high})"


class NoiseScale:
    """Measures the gradient noise scale in some of the steps.

        noise = NoiseScale(every=10)
        steps = Steps(model, optimizer, noise=noise)
        state = {..., "noise": noise}
        ...
        progress(steps.count, total, loss=steps.loss, noise_scale=noise.value)

    The parts are the micro-batches of all ranks, so there must be two of them. A measured step costs the norms of each
    micro-batch's gradients, and one exchange of four numbers. It is what SGD would see at this point of the training:
    for Adam read it as an order of magnitude, and shuffle the data.
    """

    per_rank = False
    """All ranks hold the same state."""

    def __init__(self, every: int = 10) -> None:
        """`every`: each so many steps are measured."""
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise JobError(f"every is {every!r}; valid: a number from 1 on")
        self._every = every
        self._measured: deque[torch.Tensor] = deque(maxlen=_WINDOW)
        self._norms: list[torch.Tensor] = []
        self._parts: list[tuple[torch.Tensor, float]] = []
        self._measures = False

    def attach(self, parameters: Iterable[torch.Tensor]) -> None:
        """Called by Steps: gradients of these parameters are measured. JobError for shards of FSDP2, whose ranks never
        have a whole gradient of their own samples."""
        for parameter in parameters:
            if isinstance(parameter, torch.distributed.tensor.DTensor):
                raise JobError("the noise scale cannot be measured of a model that fully_shard has sharded")
            parameter.register_hook(self._note)

    def _note(self, gradient: torch.Tensor) -> None:
        if self._measures:
            wide = torch.float64 if gradient.dtype == torch.float64 else torch.float32
            self._norms.append(torch.linalg.vector_norm(gradient, dtype=wide))

    def begin(self, step: int) -> None:
        """Called before the backward pass of a micro-batch of the step with this number."""
        self._measures = step % self._every == 0
        self._norms = []

    def passed(self, factor: float, samples: int) -> None:
        """Called after it. Its gradients are those of the mean over so many samples, times `factor`; 0 for a part that
        does not count."""
        if self._measures and self._norms and factor and samples:
            square = torch.stack(self._norms).double().square().sum()
            self._parts.append((square / factor**2, float(samples)))
        self._norms = []

    def ended(self, norm: torch.Tensor) -> None:
        """Called once the norm of all reduced gradients is known: a collective of all ranks in a measured step."""
        parts, self._parts = self._parts, []
        if not self._measures:
            return
        self._measures = False
        zero = torch.zeros((), dtype=torch.float64, device=norm.device)
        square = torch.stack([zero, *(part for part, _ in parts)]).sum()
        counts = [float(len(parts)), sum(1 / samples for _, samples in parts), sum(samples for _, samples in parts)]
        sums = torch.cat([square[None], torch.tensor(counts, dtype=torch.float64, device=norm.device)])
        if dist.is_initialized() and dist.get_world_size() > 1:
            dist.all_reduce(sums)
        total, pieces, inverse, batch = sums
        whole = norm.double().square()
        noise = (total / pieces - whole) / (inverse / pieces - 1 / batch)
        self._measured.append(torch.stack([noise, whole - noise / batch]))

    def dropped(self) -> None:
        """Called if the step is done again."""
        self._parts, self._norms = [], []

    @property
    def value(self) -> float:
        """The noise scale; NaN as long as it is not known. Waits for the device."""
        found = self.estimate()
        return math.nan if found is None else found.value

    def estimate(self) -> Estimate | None:
        """The noise scale with its interval; None if that is not known: after few measurements, or where |G|² cannot be
        told from 0. Waits for the device."""
        pairs = [pair for pair in self._pairs() if all(map(math.isfinite, pair))]
        return None if len(pairs) < _FEWEST else _ratio(pairs)

    def advice(self) -> str:
        """What the noise scale says about the batch size, in a line."""
        found = self.estimate()
        if found is None:
            return "the gradient noise scale is not known yet"
        return (
            f"the gradient noise scale is {found}: global batches far below it make noisy steps, and those far above "
            "it steps that are hardly better; read it as an order of magnitude"
        )

    def batch(self, least: int, most: int) -> int:
        """A global batch near the noise scale: `least` times a power of 2, at most `most`; `least` while the noise is
        not known, or if its interval reaches below that. The same on all ranks. For `sampler.set_global_batch`."""
        found, size = self.estimate(), least
        while found is not None and size * 2 <= min(most, found.low):
            size *= 2
        return size

    def _pairs(self) -> list[list[float]]:
        return torch.stack(list(self._measured)).tolist() if self._measured else []

    def state_dict(self) -> dict[str, Any]:
        """The newest measurements."""
        return {"measured": self._pairs()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with the measurements of `state`."""
        self._measured.clear()
        self._measured.extend(torch.tensor(pair, dtype=torch.float64) for pair in state["measured"])


def _ratio(pairs: list[list[float]]) -> Estimate | None:
    """Fieller's interval of mean(noise) / mean(|G|²); None if the denominator cannot be told from 0."""
    count = len(pairs)
    top, bottom = (math.fsum(pair[at] for pair in pairs) / count for at in (0, 1))
    deviations = [(pair[0] - top, pair[1] - bottom) for pair in pairs]
    scale = count * (count - 1)
    s11, s22 = (math.fsum(each[at] ** 2 for each in deviations) / scale for at in (0, 1))
    s12 = math.fsum(first * second for first, second in deviations) / scale
    t2 = _quantile(count - 1) ** 2
    a, b, c = bottom**2 - t2 * s22, top * bottom - t2 * s12, top**2 - t2 * s11
    if bottom <= 0 or a <= 0:
        return None
    root = math.sqrt(max(0.0, b * b - a * c))
    return Estimate(max(0.0, top / bottom), max(0.0, (b - root) / a), max(0.0, (b + root) / a))


def _quantile(freedom: int) -> float:
    """Of Student's t, two-sided, by the expansion of Cornish and Fisher (Abramowitz and Stegun, 26.7.5)."""
    z = NormalDist().inv_cdf(0.5 + _CONFIDENCE / 2)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2
