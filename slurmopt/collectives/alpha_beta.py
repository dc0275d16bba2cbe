"""The α-β model of a collective's time, t = α + S / β, fitted to what was measured.

Least squares, weighted with 1 / t²: every size counts alike, by its relative error. Without weights the largest size
alone would decide, and α would be noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

BAD_FIT = 0.25
"""From this relative error on, a fit is called bad."""


@dataclass(frozen=True)
class Fit:
    """The line, and how well it fits."""

    alpha: float
    """Seconds of a call without data: the latency."""
    alpha_error: float | None
    """Its standard error in seconds; None where two sizes leave none to be estimated."""
    beta: float | None
    """Bytes of S per second without latency: algbw of an infinite size; None where larger sizes took no longer."""
    beta_error: float | None
    relative_error: float
    """Root mean square of (fitted - measured) / measured."""
    worst_size: int
    """The size, in bytes, with the largest relative error."""
    points: int

    @property
    def is_bad(self) -> bool:
        """Whether the model does not describe the times; then neither number means much."""
        return self.beta is None or self.alpha < 0 or self.relative_error >= BAD_FIT


def fit(sizes: Sequence[int], seconds: Sequence[float]) -> Fit | None:
    """Fits the times of two sizes or more; None for fewer, or for times that are not positive."""
    points = [(float(size), time) for size, time in zip(sizes, seconds, strict=True) if time > 0]
    if len({size for size, _ in points}) < 2:
        return None
    weights = [1 / time**2 for _, time in points]
    total = sum(weights)
    mean_size = sum(weight * size for weight, (size, _) in zip(weights, points, strict=True)) / total
    mean_time = sum(weight * time for weight, (_, time) in zip(weights, points, strict=True)) / total
    spread = sum(weight * (size - mean_size) ** 2 for weight, (size, _) in zip(weights, points, strict=True))
    slope = sum(w * (s - mean_size) * (t - mean_time) for w, (s, t) in zip(weights, points, strict=True)) / spread
    alpha = mean_time - slope * mean_size
    errors = [(alpha + slope * size - time) / time for size, time in points]
    return _fit(alpha, slope, errors, points, spread, mean_size, total)


def _fit(
    alpha: float,
    slope: float,
    errors: Sequence[float],
    points: Sequence[tuple[float, float]],
    spread: float,
    mean_size: float,
    total: float,
) -> Fit:
    squares = sum(error**2 for error in errors)  # the weighted squares: the weights are 1 / t²
    left = len(points) - 2
    variance = squares / left if left else None
    alpha_error = None if variance is None else sqrt(variance * (1 / total + mean_size**2 / spread))
    slope_error = None if variance is None else sqrt(variance / spread)
    beta = 1 / slope if slope > 0 else None
    worst = max(range(len(points)), key=lambda at: abs(errors[at]))
    return Fit(
        alpha=alpha,
        alpha_error=alpha_error,
        beta=beta,
        beta_error=None if beta is None or slope_error is None else slope_error * beta**2,
        relative_error=sqrt(squares / len(points)),
        worst_size=int(points[worst][0]),
        points=len(points),
    )
