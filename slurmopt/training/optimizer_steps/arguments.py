"""What may be given to `Steps`: checks of its arguments and losses, each with one line of what is valid."""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any

import torch
import torch.distributed as dist

from slurmopt.errors import JobError
from slurmopt.training.accumulation import MicroBatch
from slurmopt.training.noise_scale import NoiseScale
from slurmopt.training.optimizer_steps.precision import FP16
from slurmopt.training.schedules import ScheduledRate


def skips_on_device(optimizer: torch.optim.Optimizer, precision: str, schedule: Any) -> bool:
    is_fused = all(group.get("fused") for group in optimizer.param_groups)
    return is_fused and precision != FP16 and (schedule is None or isinstance(schedule, ScheduledRate))


def optimizer_of(value: Any) -> torch.optim.Optimizer:
    if not isinstance(value, torch.optim.Optimizer):
        raise JobError(f"optimizer is a {type(value).__name__}; valid: a torch.optim.Optimizer")
    return value


def group_of(value: Any) -> dist.ProcessGroup:
    if not isinstance(value, dist.ProcessGroup):
        raise JobError(f"stages is {value!r}; valid: the process group of the pipeline, or None")
    return value


def schedule_of(optimizer: torch.optim.Optimizer, schedule: Any) -> Any:
    if isinstance(schedule, type):
        raise JobError(f"schedule is the class {schedule.__name__}; valid: an object of it, or a function of the steps")
    if schedule is None or hasattr(schedule, "step"):
        return schedule
    if not callable(schedule):
        raise JobError(f"schedule is {schedule!r}; valid: a function of the steps, such as schedules.cosine(1000)")
    return ScheduledRate(optimizer, schedule)


def scalar(loss: torch.Tensor) -> torch.Tensor:
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        shape = list(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise JobError(f"the loss is no scalar but {shape}; valid: a mean over the batch, or a sum with tokens=")
    if not loss.requires_grad:
        raise JobError("the loss has no gradient; it was computed under no_grad, or was detached")
    return loss


def largest_norm(value: float | None) -> float | None:
    if value is not None and not (isinstance(value, float | Real) and 0 < value < math.inf):
        raise JobError(f"clip is {value!r}; valid: a norm above 0, or None")
    return value


def measuring(noise: Any, parameters: list[torch.Tensor], precision: str) -> NoiseScale | None:
    if noise is None:
        return None
    if not isinstance(noise, NoiseScale):
        raise JobError(f"noise is {noise!r}; valid: NoiseScale(), or None")
    if precision == FP16:
        raise JobError("the noise scale is not measured in fp16, whose gradients are scaled; valid: bf16, fp32, tf32")
    noise.attach(parameters)
    return noise


def piece(micro: MicroBatch[Any] | None, weight: float, tokens: int | None) -> tuple[float, int]:
    """The factor of the mean gradient of a micro-batch, and the samples, or tokens, that it is the mean of."""
    if micro is None:
        raise JobError("the noise scale needs the sizes of micro-batches; iterate sampler.accumulate(loader)")
    return (weight, micro.samples) if tokens is None else (weight * tokens, tokens)


def every(value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise JobError(f"check_replicas is {value!r}; valid: a number of steps from 1 on, or None")
    return value


def range_of_steps(value: range) -> range:
    if not isinstance(value, range):
        raise JobError(f"anomalies is {value!r}; valid: a range of steps, such as range(1000, 1010)")
    return value


def whole_tokens(value: int | None) -> int | None:
    if value is None:
        return None
    number = operator.index(value) if hasattr(value, "__index__") and not isinstance(value, bool) else -1
    if number < 0:
        raise JobError(f"tokens is {value!r}; valid: how many tokens of the micro-batch count, 0 or more")
    return number


def passes(value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise JobError(f"accumulate is {value!r}; valid: a number from 1 on")
    return value
