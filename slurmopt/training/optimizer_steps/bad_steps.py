"""Steps whose gradients are not finite, or a spike: counted, told, and after some in a row the end of the attempt.

Whether a step is bad is decided by the norm of the reduced gradients, which is equal on all ranks: a NaN survives a
sum. So no rank skips a step that the others take.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import torch
import torch.distributed as dist

from slurmopt.errors import JobError
from slurmopt.log import warning

_SHOWN_RANKS, _SHOWN_SAMPLES = 4, 4
"""In a line of the log: ranks, and of each the indices of its samples."""
_MISSING = -1


class Found:
    """The norm of the gradients of a step, and the largest that it may be; read by the host when it needs them."""

    def __init__(
        self,
        number: int,
        norm: torch.Tensor,
        limit: torch.Tensor | None,
        loss: torch.Tensor,
        indices: Sequence[Callable[[], list[int]]] = (),
    ) -> None:
        """`limit`: None for none. `loss`: the sum of this rank's losses in the step. `indices`: of its samples, of each
        micro-batch; computed where they are needed."""
        self.number, self._loss, self._indices = number, loss, indices
        self._event: torch.cuda.Event | None = None
        self._numbers = norm if limit is None else torch.stack([norm, limit])
        if norm.is_cuda:  # a later `tolist` would wait for all that is queued by then
            pinned = torch.empty(self._numbers.shape, dtype=norm.dtype, pin_memory=True)
            self._numbers = pinned.copy_(self._numbers, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    @functools.cached_property
    def _read(self) -> tuple[float, float]:
        """Waits for this step, and for nothing that was queued after it."""
        if self._event is not None:
            self._event.synchronize()
        if self._numbers.ndim == 0:
            return self._numbers.item(), math.inf
        norm, limit = self._numbers.tolist()
        return norm, limit

    @property
    def is_spike(self) -> bool:
        """Whether the gradients are finite and larger than the limit."""
        norm, limit = self._read
        return math.isfinite(norm) and norm > limit

    @property
    def is_bad(self) -> bool:
        """Whether the step is not to be taken."""
        return self.is_spike or not math.isfinite(self._read[0])

    @property
    def said(self) -> str:
        """The norm and what is wrong with it: a collective of all ranks."""
        norm, limit = self._read
        ranks = _of_all_ranks(self._loss, self._indices)
        if self.is_spike:
            return f"{norm:.4g}, a spike: that of the last steps gives a limit of {limit:.4g}; {_largest(ranks)}"
        return f"{norm}, {_not_finite(ranks)}"


class BadSteps:
    """Counts bad steps. `limit`: how many in a row are too many; None: any number is allowed."""

    def __init__(self, limit: int | None) -> None:
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise JobError(f"bad_steps is {limit!r}; valid: a number from 1 on, or None")
        self._limit = limit
        self.total = self.in_a_row = 0

    def found(self, step: Found) -> str | None:
        """A step is bad. All ranks call it, as all see the same norm. Returns the evidence, on all ranks, if it is one
        too many in a row."""
        self.total += 1
        self.in_a_row += 1
        evidence = f"step {step.number}: the norm of the gradients is {step.said}"
        if self._limit is not None and self.in_a_row >= self._limit:
            return f"{self.in_a_row} bad steps in a row; {evidence}"
        if not dist.is_initialized() or dist.get_rank() == 0:
            warning(f"a bad step is skipped: {evidence}")
        return None

    def good(self) -> None:
        """A step was taken."""
        self.in_a_row = 0

    def state_dict(self) -> dict[str, int]:
        """The counts."""
        return {"total": self.total, "in_a_row": self.in_a_row}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on counting."""
        self.total, self.in_a_row = int(state["total"]), int(state["in_a_row"])


_OfRank = tuple[int, float, list[int], int]
"""A rank, its loss, the first indices of its samples, and how many samples there are."""


def _of_all_ranks(loss: torch.Tensor, indices: Sequence[Callable[[], list[int]]]) -> list[_OfRank]:
    """The loss and the samples of each rank: a collective of all ranks."""
    first = list(islice(chain.from_iterable(part() for part in indices), _SHOWN_SAMPLES))
    count = sum(len(part()) for part in indices)
    numbers = [loss.detach().double().item(), count, *first, *[_MISSING] * (_SHOWN_SAMPLES - len(first))]
    own = torch.tensor(numbers, dtype=torch.float64, device=loss.device)  # exact for indices up to 2^53
    every = [own]
    if dist.is_initialized() and dist.get_world_size() > 1:
        every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(every, own)
    return [
        (rank, row[0], [int(index) for index in row[2:] if index != _MISSING], int(row[1]))
        for rank, row in enumerate(each.tolist() for each in every)
    ]


def _not_finite(ranks: Sequence[_OfRank]) -> str:
    """Names the ranks whose loss is not finite."""
    wrong = [_said(rank) for rank in ranks if not math.isfinite(rank[1])]
    if not wrong:
        return "and the losses of all ranks are finite"
    more = f" and {len(wrong) - _SHOWN_RANKS} more" if len(wrong) > _SHOWN_RANKS else ""
    return f"the loss is {', '.join(wrong[:_SHOWN_RANKS])}{more}"


def _largest(ranks: Sequence[_OfRank]) -> str:
    return f"the largest loss is {_said(max(ranks, key=lambda rank: rank[1]))}"


def _said(of_rank: _OfRank) -> str:
    rank, loss, first, count = of_rank
    if not first:
        return f"{loss:.4g} on rank {rank}"
    more = f" and {count - len(first)} more" if count > len(first) else ""
    return f"{loss:.4g} on rank {rank} (samples {', '.join(map(str, first))}{more})"
