"""Early stopping that all ranks take at the same step, and that a restart does not forget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import torch
import torch.distributed as dist

from slurmopt.errors import JobError
from slurmopt.job.worker.current_run import note_end


class EarlyStopping:
    """Tells when a metric has not improved for some evaluations.

        early = EarlyStopping(patience=5)
        state = {..., "early": early}
        ...
        if early.update(validation_loss):
            break

    Rank 0 decides, and all ranks get its answer. A metric that is missing (None) or not finite is no improvement. A run
    that then finishes says so in `slurmopt status`.
    """

    per_rank = False
    """All ranks hold the same state."""

    def __init__(self, patience: int, *, mode: str = "min", least: float = 0.0) -> None:
        """`patience`: evaluations without improvement after which to stop. `mode`: whether the best value is the
        smallest (`min`) or the largest (`max`). `least`: by how much a value must be better. Raises JobError."""
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            raise JobError(f"patience is {patience!r}; valid: a number of evaluations from 1 on")
        if mode not in ("min", "max"):
            raise JobError(f"mode is {mode!r}; valid: min, max")
        if not (isinstance(least, float | Real) and 0 <= least < math.inf):
            raise JobError(f"least is {least!r}; valid: 0 or more")
        self._patience, self._sign, self._least = patience, 1.0 if mode == "min" else -1.0, least
        self.best: float | None = None
        """The best value so far; None before the first that is finite."""
        self.since = 0
        """Evaluations since it improved."""

    def update(self, value: float | torch.Tensor | None) -> bool:
        """Takes the metric of an evaluation. Returns whether to stop: the same on all ranks, which all call it."""
        number = _agreed(math.nan if value is None else float(value))
        if math.isfinite(number) and (self.best is None or self._sign * (self.best - number) > self._least):
            self.best, self.since = number, 0
        else:
            self.since += 1
        if self.since < self._patience:
            return False
        best = "no value was finite" if self.best is None else f"the best value is {self.best:g}"
        note_end(f"stopped early: no improvement in {self.since} evaluations; {best}")
        return True

    def state_dict(self) -> dict[str, Any]:
        """The best value, and how long ago it was."""
        return {"best": self.best, "since": self.since}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state`, with the patience of this attempt's config."""
        self.best, self.since = state["best"], int(state["since"])


def _agreed(number: float) -> float:
    """The number of rank 0."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return number
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    told = torch.tensor(number, dtype=torch.float64, device=device)
    dist.broadcast(told, src=0)
    return told.item()
