"""Whether the ranks of a training exchange the gradients of a model, and the optimizer is that of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from slurmopt.errors import JobError


def refuse_unfit(model: torch.nn.Module, parameters: Sequence[torch.Tensor], stages: int = 1) -> None:
    """Raises JobError where the optimizer, which has `parameters`, would not train the model on all ranks. `stages`: of
    a pipeline, which do not exchange gradients with each other."""
    if not isinstance(model, torch.nn.Module):
        raise JobError(f"model is a {type(model).__name__}; valid: a torch.nn.Module")
    if not parameters:
        raise JobError("the optimizer has no parameters")
    own = {id(parameter) for parameter in model.parameters()}
    foreign = sum(id(parameter) not in own for parameter in parameters)
    if foreign:
        raise JobError(
            f"{foreign} of {len(parameters)} parameters of the optimizer are not the model's; make the optimizer after "
            "fully_shard and after the model was moved or wrapped"
        )
    if dist.is_initialized() and dist.get_world_size() > stages and not exchanges_gradients(model):
        raise JobError(
            f"the {dist.get_world_size()} ranks would not exchange gradients: wrap the model in "
            "DistributedDataParallel, or shard it with fully_shard"
        )


def is_sharded(model: Any) -> bool:
    """Whether modules of the model are sharded by FSDP2, so that their forward passes have collectives."""
    from torch.distributed.fsdp import FSDPModule

    return any(isinstance(module, FSDPModule) for module in model.modules())


def exchanges_gradients(model: Any) -> bool:
    """Whether the model is a DistributedDataParallel or sharded by FSDP2, also inside torch.compile."""
    from torch.distributed.fsdp import FSDPModule

    exchanging = (torch.nn.parallel.DistributedDataParallel, FSDPModule)
    return any(isinstance(module, exchanging) for module in model.modules())
