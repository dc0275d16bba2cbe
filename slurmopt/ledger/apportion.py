"""Divides an integer into integers that are proportional to weights and sum to it exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

_Key = TypeVar("_Key")
_FINE = 1 << 40
"""The largest weight as an integer; weights below a trillionth of it count as 0."""
_MOST = 1e12
"""A weight is at most that: no number of seconds or GPUs is as large."""


def apportion(total: int, weights: Sequence[float]) -> list[int]:
    """Shares of `total`, by the method of the largest remainder.

    Raises ValueError where there is something to divide and no weight is above 0.
    """
    finite = [min(weight, _MOST) if weight > 0 else 0.0 for weight in weights]  # NaN counts as 0 too
    largest = max(finite, default=0.0)
    exact = [round(weight / largest * _FINE) if largest else 0 for weight in finite]
    whole = sum(exact)
    if not whole:
        if total:
            raise ValueError("no weight is above 0")
        return [0] * len(exact)
    shares = [total * weight // whole for weight in exact]
    left = total - sum(shares)
    if left:
        by_remainder = sorted(range(len(exact)), key=lambda index: total * exact[index] % whole, reverse=True)
        for index in by_remainder[:left]:
            shares[index] += 1
    return shares


def apportioned(total: int, weights: Mapping[_Key, float]) -> dict[_Key, int]:
    """The same for named weights; shares of 0 are left out."""
    shares = apportion(total, list(weights.values()))
    return {name: share for name, share in zip(weights, shares, strict=True) if share}
