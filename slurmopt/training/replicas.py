"""Whether all ranks hold the same weights: a cheap comparison that names the rank and the tensor that differ."""

from __future__ import annotations

import torch
import torch.distributed as dist

from slurmopt.errors import JobError

_WORDS = {1: torch.int8, 2: torch.int16}
"""Bytes of an element → the integer of that size; larger elements are taken as several of int32."""
_AT_ONCE = 1 << 20
"""Words that are hashed at a time, so that it takes little memory."""
_ODD = (0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9)
"""Large factors that mix all bits."""


def check_replicas(model: torch.nn.Module) -> None:
    """Compares the parameters of all ranks bit for bit: a collective, for models that each rank has whole.

    Of each parameter a hash of eight bytes is exchanged, so it costs little more than reading the weights. Shards of
    FSDP2, and statistics such as those of BatchNorm, differ by design and are left out. Raises JobError on all ranks,
    with the first parameter that differs, and the ranks that hold another one than most.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return
    tensors = _replicated(model)
    if not tensors:
        return
    own = torch.stack([_hash(value) for value in tensors.values()])
    every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(every, own)
    hashes = torch.stack(every)  # of each rank, a row
    usual = hashes.mode(dim=0).values
    for number, name in enumerate(tensors):
        ranks = (hashes[:, number] != usual[number]).nonzero()[:, 0].tolist()
        if ranks:
            raise JobError(f"the weights of the ranks differ: {name} {_where(ranks, len(every))}")


def _where(ranks: list[int], world_size: int) -> str:
    if 2 * len(ranks) >= world_size:
        return "is the same on no more than half of them"
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"on rank {', '.join(map(str, ranks[:8]))}{more}, from that of most ranks"


def _replicated(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {
        name.removeprefix("module."): value.detach()
        for name, value in model.named_parameters()
        if value.numel() and not isinstance(value, torch.distributed.tensor.DTensor)
    }


def _hash(value: torch.Tensor) -> torch.Tensor:
    """Eight bytes as int64, which all backends exchange: the words of the tensor, each times an odd number of its
    place, added modulo 2^64. So it tells apart what a plain sum or XOR does not: other orders, and constants. NaNs are
    compared by their bits."""
    words = value.contiguous().reshape(-1).view(_WORDS.get(value.element_size(), torch.int32))
    factors = _factors(min(len(words), _AT_ONCE), value.device)
    total = torch.zeros((), dtype=torch.int64, device=value.device)
    for part in words.split(_AT_ONCE):
        total = total * _ODD[0] + (part * factors[: len(part)]).sum()
    return total


def _factors(count: int, device: torch.device) -> torch.Tensor:
    """Odd numbers without a pattern, the same on all ranks."""
    mixed = torch.arange(1, count + 1, device=device) * _ODD[0]
    mixed = (mixed ^ (mixed >> 32)) * _ODD[1]
    return mixed ^ (mixed >> 29) | 1
