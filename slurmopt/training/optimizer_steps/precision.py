"""The precision of a training step: what autocast computes in, and the scale of the loss that fp16 needs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch

from slurmopt.errors import JobError

BF16, FP16, FP32, TF32 = "bf16", "fp16", "fp32", "tf32"
PRECISIONS = (BF16, FP16, FP32, TF32)
_TYPES = {BF16: torch.bfloat16, FP16: torch.float16}


class Precision:
    """Computes forward passes in `name`, a word of PRECISIONS, on the device type `device`.

    bf16 and fp16: by `torch.autocast`, with parameters, gradients and optimizer in fp32. fp16 has a small range, so the
    loss is scaled (`torch.amp.GradScaler`). tf32: fp32 whose matrix products may round their factors to TF32, on GPUs
    from Ampere on.
    """

    def __init__(self, name: str, device: str) -> None:
        if name not in PRECISIONS:
            raise JobError(f"precision is {name!r}; valid: {', '.join(PRECISIONS)}")
        self._type, self._device = _TYPES.get(name), device
        self._scaler = torch.amp.GradScaler(device) if name == FP16 else None
        if name == TF32:
            torch.set_float32_matmul_precision("high")

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The context of a forward pass and its loss."""
        if self._type is None:
            return contextlib.nullcontext()
        return torch.autocast(self._device, self._type)

    @property
    def is_unscaled(self) -> bool:
        """Whether losses are taken as they are."""
        return self._scaler is None

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss to call `backward` of."""
        return loss if self._scaler is None else self._scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides the gradients by the scale again."""
        if self._scaler is not None:
            self._scaler.unscale_(optimizer)

    @property
    def can_back_off(self) -> bool:
        """Whether gradients that are not finite may come from the scale, which then shrinks."""
        return self._scaler is not None and self._scaler.get_scale() > 1.0

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer's step, with gradients that are finite."""
        if self._scaler is None:
            optimizer.step()
        else:
            self._scaler.step(optimizer)
            self._scaler.update()

    def skip(self, shrinks: bool = True) -> None:
        """In place of a step: the scale shrinks, as the largest gradients may have overflowed in fp16."""
        if self._scaler is not None:
            factor = self._scaler.get_backoff_factor() if shrinks else 1.0
            self._scaler.update(max(1.0, self._scaler.get_scale() * factor))

    def state_dict(self) -> dict[str, Any]:
        """The state of the scale; empty where there is none."""
        return {} if self._scaler is None else self._scaler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with the scale of `state`. A run that had none before begins with a scale of its own."""
        if self._scaler is not None and state:
            self._scaler.load_state_dict(dict(state))
