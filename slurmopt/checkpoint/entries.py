"""An entry of the state taken apart, and whose it is: rank 0's for all ranks, or each rank's own.

Each rank keeps its own where the entry asks for it (`per_rank = True`), and where the ranks' values turn out to differ:
a data loader's position, a counter. `per_rank = False` means that rank 0's is everybody's, whatever the others have.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import xxhash

from slurmopt.checkpoint.memory import memory_of
from slurmopt.checkpoint.objects import encode
from slurmopt.checkpoint.state import renamed, take_apart
from slurmopt.checkpoint.wrappers import state_of, unwrapped

_SMALL_BYTES = 64 << 10
"""Tensors up to this size are compared, where they lie in host memory and belong to no model or optimizer: those are
DDP's to keep alike, and to hash them would take as long as to copy them."""


class Entry(NamedTuple):
    """`key` is the name that its object is saved under; `digest` is None where the ranks need not compare."""

    key: str
    object: bytes
    digest: int | None
    is_own: bool


class Entries:
    """Takes entries apart for one rank, and remembers which differ: those stay each rank's own, so plans stay too."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._differing: set[str] = set()

    def take_apart(self, name: str, value: Any, tensors: dict[str, torch.Tensor]) -> Entry:
        """The entry; its tensors go into `tensors`."""
        own = per_rank_name(name, self._rank)
        if keeps_own(value):
            return Entry(own, encode(take_apart(own, state_of(value), tensors), own), None, True)
        mine: dict[str, torch.Tensor] = {}
        skeleton = take_apart(name, state_of(value), mine)
        small = {} if isinstance(unwrapped(value), (torch.nn.Module, torch.optim.Optimizer)) else _small(mine)
        if name in self._differing:
            names = {each: own + each.removeprefix(name) for each in small}
            tensors.update({names.get(each, each): tensor for each, tensor in mine.items()})
            return Entry(own, encode(renamed(skeleton, names), own), None, True)
        tensors.update(mine)
        encoded = encode(skeleton, name)
        return Entry(name, encoded, _digest(encoded, small) if may_differ(value) else None, False)

    def compare(self, told: list[dict[str, int]]) -> list[str]:
        """Remembers the entries whose digests are not the same on all ranks; returns them. The same on all ranks."""
        names = {name for digests in told for name in digests}
        found = sorted(name for name in names if len({digests.get(name) for digests in told}) > 1)
        self._differing.update(found)
        return found

    def alike(self, state: dict[str, Any], tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The tensors that all ranks must have in the same shape, by names that are the same on all of them. Only
        objects may have others on each rank: what is plain would not fit when it is restored."""
        own, plain = [], {}
        for name, value in state.items():
            if keeps_own(value) or (name in self._differing and hasattr(value, "state_dict")):
                own.append(per_rank_name(name, self._rank))
            elif name in self._differing:
                plain[per_rank_name(name, self._rank)] = name
        found = {}
        for name, tensor in tensors.items():
            prefix = next((prefix for prefix in plain if name.startswith(prefix)), "")
            if not name.startswith(tuple(own)):
                found[plain.get(prefix, "") + name.removeprefix(prefix)] = tensor
        return found


def keeps_own(value: Any) -> bool:
    """Whether an entry asks for a value of its own on each rank."""
    return bool(getattr(value, "per_rank", False))


def may_differ(value: Any) -> bool:
    """Whether the ranks may have values of their own of an entry."""
    return getattr(value, "per_rank", None) is not False


def can_derive(value: Any) -> bool:
    """Whether an entry can make a state of its own, from rank 0's, for a rank that was not there when it was saved."""
    return keeps_own(value) and hasattr(value, "derive")


def per_rank_name(name: str, rank: int) -> str:
    """The entry of one rank, where each has its own."""
    return f"{name}/rank-{rank:05d}"


def _small(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        name: tensor
        for name, tensor in tensors.items()
        if type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.nbytes <= _SMALL_BYTES
    }


def _digest(encoded: bytes, small: dict[str, torch.Tensor]) -> int:
    digest = xxhash.xxh3_64(encoded)
    for tensor in small.values():
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
        digest.update(f"{plain.dtype}{tuple(plain.shape)}".encode())
        digest.update(memory_of(plain))
    return int(digest.intdigest())
