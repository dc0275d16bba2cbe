"""The gradients of an optimizer's parameters: their norm over all ranks, scaling, clipping."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from slurmopt.errors import JobError


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """All parameters of an optimizer, in the order of its groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def total_norm(parameters: Iterable[torch.Tensor], stages: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The Euclidean norm of all gradients, the same on all ranks: those of DDP are equal, and of a DTensor, as FSDP2
    shards gradients, the norm of the whole is taken. The squares of the norms of pipeline `stages` are added. A scalar
    on the device of the gradients; 0 without any. JobError for sparse ones."""
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if any(grad.layout != torch.strided for grad in grads):
        raise JobError("a gradient is sparse, and has no norm; make the embedding with sparse=False")
    norm = get_total_norm(grads) if grads else torch.zeros(())
    norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    if stages is None:
        return norm
    square = norm.square()
    dist.all_reduce(square, group=stages)
    return square.sqrt()


def scale(parameters: Iterable[torch.Tensor], factor: torch.Tensor) -> None:
    """Multiplies all gradients by `factor`, a scalar on their device."""
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(factor)


def clip(parameters: Iterable[torch.Tensor], most: float, norm: torch.Tensor) -> None:
    """Scales all gradients so that their total norm, which is `norm`, is at most `most`."""
    clip_grads_with_norm_(list(parameters), most, norm)
