"""Creates the state of optimizers that have done no step yet, so that a checkpoint can be loaded into it."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor

from slurmopt.checkpoint.wrappers import refuse_parts


def create_optimizer_states(state: dict[str, Any]) -> None:
    """Creates the state of each optimizer in `state` by a step with zero gradients and a learning rate of 0.

    Needed where parameters are sharded, since only the optimizer knows the layout of its state; and where they are on a
    device, so that the state is read to there instead of being loaded into host memory as a whole on each rank.
    """
    for name, value in state.items():
        refuse_parts(name, value)
        if isinstance(value, torch.optim.Optimizer) and not value.state:
            _create_state(value)


def _create_state(optimizer: torch.optim.Optimizer) -> None:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if not any(isinstance(parameter, DTensor) or parameter.device.type != "cpu" for parameter in parameters):
        return
    sharded = any(isinstance(parameter, DTensor) for parameter in parameters)
    rates = [group["lr"] for group in optimizer.param_groups]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    for group in optimizer.param_groups:
        group["lr"] = torch.zeros_like(group["lr"]) if isinstance(group["lr"], torch.Tensor) else 0.0
    try:
        optimizer.step()
    except Exception:  # for example, it requires a closure
        if sharded:  # the layout of its state stays unknown
            raise
        optimizer.state.clear()  # it is loaded through host memory
    finally:
        optimizer.zero_grad(set_to_none=True)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
