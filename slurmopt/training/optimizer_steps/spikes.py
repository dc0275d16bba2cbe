"""Spikes: steps whose gradients are finite, and far larger than those before.

The limit is the median of the norms of the last steps plus a number of median absolute deviations (MAD), in units of
the standard deviation of a normal distribution. All of it stays on the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

import torch

from slurmopt.errors import JobError

_WINDOW, _LEAST = 128, 32
"""Steps that are compared with, and how many must have been taken before anything is a spike."""
_NORMAL = 1.4826
"""MAD → standard deviation of a normal distribution."""


def bad(norm: torch.Tensor, limit: torch.Tensor | None) -> torch.Tensor:
    """Whether a step with this norm is not to be taken, on the device."""
    return ~norm.isfinite() if limit is None else ~(norm <= limit) | norm.isinf()


class Spikes:
    """The norms of the last steps. `deviations`: how far above the median a norm is a spike; None: none is."""

    def __init__(self, deviations: float | None) -> None:
        if deviations is not None and not (isinstance(deviations, float | Real) and 0 < deviations < math.inf):
            raise JobError(f"spikes is {deviations!r}; valid: a number of deviations such as 10, or None")
        self._deviations = deviations
        self._norms: list[torch.Tensor] = []

    def limit(self) -> torch.Tensor | None:
        """The largest norm that is no spike, on the device; None while too little is known."""
        if self._deviations is None or len(self._norms) < _LEAST:
            return None
        norms = torch.stack(self._norms)
        median = norms.nanmedian()
        deviation = (norms - median).abs().nanmedian()
        return median + self._deviations * _NORMAL * deviation

    def add(self, norm: torch.Tensor, limit: torch.Tensor | None) -> None:
        """Takes the norm of a step, which counts for the next ones unless it is bad."""
        if self._deviations is not None:
            is_bad = bad(norm, limit)
            self._norms = [*self._norms[1 - _WINDOW :], torch.where(is_bad, math.nan, norm)]

    def state_dict(self) -> list[float]:
        """The norms; NaN for those of bad steps."""
        return torch.stack(self._norms).tolist() if self._norms else []

    def load_state_dict(self, state: Sequence[float], device: torch.device, dtype: torch.dtype) -> None:
        """Goes on with the norms of `state`."""
        self._norms = list(torch.tensor(list(state), dtype=dtype, device=device)) if self._deviations else []
