"""Counts the floating-point operations of a model's forward and backward, without computing anything."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from slurmopt import log
from slurmopt.errors import JobError

_STANDARD = ("aten", "prim", "prims")
_HEAVY = ("attention", "fft", "lstm", "gru", "rnn", "cdist", "linalg", "grouped_mm", "int_mm")
"""Parts of the names of torch's own operations that take much time and that its counter does not know."""


@dataclass(frozen=True)
class Flops:
    """The operations of one forward and backward; a multiplication with an addition counts two."""

    model: int
    """What the model needs."""
    hardware: int
    """With what is computed a second time in the backward, under activation checkpointing."""
    not_counted: dict[str, int]
    """Operation → how often it was called: those that take time and have no formula, such as your own kernels."""


def count_flops(
    model: torch.nn.Module, *inputs: Any, loss: Callable[[Any], torch.Tensor] | None = None, **named: Any
) -> Flops:
    """The operations of one call of `model` with `inputs`, and of the backward of `loss(output)` (without `loss`: of
    the sum of the output's tensors). Logs what was not counted.

        flops = count_flops(model, torch.zeros(1, 1024, dtype=torch.long))
        slurmopt.flops_per_token(flops.model / 1024, hardware=flops.hardware / 1024)

    It uses torch's FlopCounterMode on fake tensors: nothing is computed, no memory is taken, and `model` stays as it
    is. Counted are matrix products, convolutions and attention, causal attention in full; element-wise operations are
    not, as is usual. Call it before the model is sharded (FSDP). Raises JobError for a model that cannot be copied, or
    whose forward depends on values.
    """
    plain = getattr(model, "_orig_mod", model)
    plain = plain.module if isinstance(plain, torch.nn.parallel.DistributedDataParallel) else plain
    try:
        counted = _count(plain, inputs, named, loss)
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise JobError(
            f"count_flops: {type(plain).__name__} cannot be run on tensors without values ({type(error).__name__}: "
            f"{first}); tell the number yourself: slurmopt.flops_per_token, slurmopt.flops_per_sample"
        ) from error
    if counted.not_counted:
        calls = ", ".join(f"{name} ({count} calls)" for name, count in counted.not_counted.items())
        log.warning(f"count_flops: no formula for {calls}: they count 0")
    return counted


def _count(
    model: torch.nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], loss: Callable[[Any], torch.Tensor] | None
) -> Flops:
    from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
    from torch.utils._pytree import tree_map_only

    fake = FakeTensorMode(allow_non_fake_inputs=True)  # constants that a forward makes of its own
    with FakeCopyMode(fake):
        model = copy.deepcopy(model)
    inputs, named = tree_map_only(torch.Tensor, lambda tensor: fake.from_tensor(tensor), (inputs, named))
    model.train()
    seen = _Seen()
    # The counter has no formula for each kernel of attention; as matrix products all of it counts, and once.
    attention = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with torch.enable_grad(), attention, fake, FlopCounterMode(display=False) as counter, seen:
        output = model(*inputs, **named)
        value = _sum(output) if loss is None else loss(output)
        seen.in_backward = True
        value.backward()
    total = counter.get_total_flops()
    return Flops(total - seen.recomputed, total, dict(seen.not_counted.most_common()))


def _sum(output: Any) -> torch.Tensor:
    from torch.utils._pytree import tree_leaves

    tensors = [each for each in tree_leaves(output) if isinstance(each, torch.Tensor) and each.requires_grad]
    if not tensors:
        raise ValueError("no tensor of its output has a gradient")
    return torch.stack([each.float().sum() for each in tensors]).sum()


class _Seen(TorchDispatchMode):
    """What the counter executes, in parts as it counts them."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.in_backward = False
        self.recomputed = 0
        self.not_counted: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        operation = getattr(func, "_overloadpacket", func)
        if operation not in flop_registry:
            if _is_heavy(func):
                self.not_counted[str(operation)] += 1
        elif self.in_backward and torch.is_grad_enabled():  # a forward within the backward: a backward records none
            self.recomputed += flop_registry[operation](*args, **(kwargs or {}), out_val=output)
        return output


def _is_heavy(func: Any) -> bool:
    """Whether an operation without a formula is one that takes time: none of torch's own, or one in `_HEAVY`."""
    namespace = getattr(func, "namespace", "")
    name = str(getattr(func, "_overloadpacket", func)).rpartition(".")[2]
    return namespace not in _STANDARD or any(part in name for part in _HEAVY)
