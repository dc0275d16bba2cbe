"""An exponential moving average of the weights of a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn

from slurmopt.errors import CheckpointError, JobError


class Ema:
    """An exponential moving average (EMA) of the parameters of a model, which may be replicated or sharded.

        ema = Ema(model, decay=0.999)
        state = {..., "ema": ema}
        ...
        if steps.backward(loss, micro):
            ema.update()
        ...
        with ema.averaged():
            evaluate(model)

    Each rank averages what it holds, so that nothing is exchanged. Buffers, such as statistics of BatchNorm, are not
    averaged. A step that was skipped changes no weights, and the average comes nearer to them.
    """

    per_rank = False
    """All ranks hold the same average, or shards of it."""

    def __init__(self, model: torch.nn.Module, decay: float = 0.999) -> None:
        """`model`: as it is trained, after `fully_shard`. `decay`: how much of the average stays in each update, from 0
        to 1. Begins with the weights as they are. Raises JobError."""
        if isinstance(decay, bool) or not isinstance(decay, float | int) or not 0 <= decay < 1:
            raise JobError(f"decay is {decay!r}; valid: a number from 0 to below 1, such as 0.999")
        self._update = get_ema_multi_avg_fn(float(decay))
        self._weights = {name.removeprefix("module."): value for name, value in model.named_parameters()}
        self._average = {name: value.detach().clone() for name, value in self._weights.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Takes the weights in, after a step."""
        average, weights = (_local(values) for values in (self._average, self._weights))
        self._update(average, weights, None)

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """In the block, the model has the averaged weights; afterwards its own again. Takes memory for another copy."""
        average, weights = (_local(values) for values in (self._average, self._weights))
        own = [value.clone() for value in weights]
        _copy(weights, average)
        try:
            yield
        finally:
            _copy(weights, own)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The average of each parameter."""
        return self._average

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with the averages of `state`. CheckpointError if they are of another model."""
        if odd := sorted(set(state) ^ set(self._average)):
            raise CheckpointError(f"the average in the checkpoint is of another model: {', '.join(odd[:4])}")
        with torch.no_grad():
            for name, value in self._average.items():
                value.copy_(state[name])


def _local(values: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """What this rank holds of each."""
    return [value.to_local() if hasattr(value, "to_local") else value.detach() for value in values.values()]


@torch.no_grad()
def _copy(to: list[torch.Tensor], values: list[torch.Tensor]) -> None:
    torch._foreach_copy_(to, values)
