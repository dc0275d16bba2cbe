"""Entries: splits the entries of a state, and decides which are saved once and which once per rank.

A value is saved per rank where the entry has `per_rank = True`, and where the ranks' values differ: a data loader's
position, a counter. With `per_rank = False` rank 0's value is saved for all ranks, whatever the others have.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import xxhash

from slurmopt.checkpoint.format.object_encoder import encode
from slurmopt.checkpoint.format.state import renamed, take_apart
from slurmopt.checkpoint.format.tensor_bytes import memory_of
from slurmopt.checkpoint.wrappers import refuse_parts, state_of, unwrapped


class Entry(NamedTuple):
    """`key` is the name that its object is saved under; `compared` are the tensors that are saved once for all ranks
    and must be the same on all of them, None where nothing of the entry is compared."""

    key: str
    object: bytes
    compared: dict[str, torch.Tensor] | None
    is_own: bool


class Entries:
    """Splits entries on one rank, and remembers which differ between ranks, so that plans remain valid."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._alike: dict[str, set[str]] = {}  # of each entry that differs, the tensors that have been equal so far
        self._digests: dict[str, dict[str, int]] = {}

    def take_apart(self, name: str, value: Any, tensors: dict[str, torch.Tensor]) -> Entry:
        """The entry; adds its tensors to `tensors`."""
        refuse_parts(name, value)
        own = per_rank_name(name, self._rank)
        if keeps_own(value):
            return Entry(own, encode(take_apart(own, state_of(value), tensors), own), None, True)
        parts: dict[str, torch.Tensor] = {}
        skeleton = take_apart(name, state_of(value), ChainMap(parts, tensors))
        compared = {} if isinstance(unwrapped(value), (torch.nn.Module, torch.optim.Optimizer)) else _plain(parts)
        if name in self._alike:
            names = {each: own + each.removeprefix(name) for each in compared.keys() - self._alike[name]}
            tensors.update({names.get(each, each): tensor for each, tensor in parts.items()})
            common = {each: tensor for each, tensor in compared.items() if each not in names}
            return Entry(own, encode(renamed(skeleton, names), own), common, True)
        tensors.update(parts)
        return Entry(name, encode(skeleton, name), compared if may_differ(value) else None, False)

    def digests(self, entries: dict[str, Entry]) -> dict[str, int]:
        """A digest of each entry that may differ between the ranks, of the data that would be saved once."""
        compared = {name: entry for name, entry in entries.items() if entry.compared is not None}
        self._digests = {name: _digests(entry.compared or {}) for name, entry in compared.items()}
        return {
            name: _digest(b"" if entry.is_own else entry.object, self._digests[name])
            for name, entry in compared.items()
        }

    def compare(
        self, digests_of_ranks: list[dict[str, int]], gather: Callable[[Any], list[Any]]
    ) -> tuple[bool, list[str]]:
        """Whether digests differ between the ranks, and the entries that differ for the first time.

        These are saved per rank from now on, except for their tensors that are equal on all ranks. A tensor that has
        differed once, or is new in such an entry, is never considered equal again. A collective call with the same
        result on all ranks.
        """
        names = {name for digests in digests_of_ranks for name in digests}
        differing = sorted(name for name in names if len({digests.get(name) for digests in digests_of_ranks}) > 1)
        if not differing:
            return False, []
        before = set(self._alike)
        each = gather({name: self._digests.get(name, {}) for name in differing})
        for name in differing:
            alike = _in_all([theirs[name] for theirs in each])
            self._alike[name] = alike & self._alike.get(name, alike)
        return True, [name for name in differing if name not in before]

    def alike(self, state: dict[str, Any], tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The tensors that must have equal shapes on all ranks, by names that are equal on all of them.

        Only objects with a state_dict may have other tensors on each rank: plain values would not fit at a restore.
        """
        own, plain = [], {}
        for name, value in state.items():
            if keeps_own(value) or (name in self._alike and hasattr(value, "state_dict")):
                own.append(per_rank_name(name, self._rank))
            elif name in self._alike:
                plain[per_rank_name(name, self._rank)] = name
        alike = {}
        for name, tensor in tensors.items():
            prefix = next((prefix for prefix in plain if name.startswith(prefix)), "")
            if not name.startswith(tuple(own)):
                alike[plain.get(prefix, "") + name.removeprefix(prefix)] = tensor
        return alike


def keeps_own(value: Any) -> bool:
    """Whether an entry is saved per rank."""
    return bool(getattr(value, "per_rank", False))


def may_differ(value: Any) -> bool:
    """Whether the values of an entry may differ between ranks."""
    return getattr(value, "per_rank", None) is not False


def can_derive(value: Any) -> bool:
    """Whether an entry can derive the state of a new rank from that of rank 0."""
    return keeps_own(value) and hasattr(value, "derive")


def per_rank_name(name: str, rank: int) -> str:
    """The name of one rank's value of an entry that is saved per rank."""
    return f"{name}/rank-{rank:05d}"


def shared_name(entry: str, name: str) -> str:
    """The name of an entry's tensor without the rank."""
    return re.sub(rf"^{re.escape(entry)}/rank-\d{{5,}}(?=[.#]|$)", lambda _: entry, name)


def _plain(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors to compare: plain ones in host memory, which take about half as long to hash as to copy. Those on a
    GPU would have to be copied, and DDP keeps the parameters of models and optimizers equal."""
    return {
        name: tensor for name, tensor in tensors.items() if type(tensor) is torch.Tensor and tensor.device.type == "cpu"
    }


def _digests(tensors: dict[str, torch.Tensor]) -> dict[str, int]:
    return {name: _of_tensor(tensor) for name, tensor in tensors.items()}


def _of_tensor(tensor: torch.Tensor) -> int:
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    digest = xxhash.xxh3_64(f"{plain.dtype}{tuple(plain.shape)}".encode())
    digest.update(memory_of(plain))
    return int(digest.intdigest())


def _digest(encoded: bytes, tensors: dict[str, int]) -> int:
    digest = xxhash.xxh3_64(encoded)
    digest.update(repr(sorted(tensors.items())).encode())
    return int(digest.intdigest())


def _in_all(each: list[dict[str, int]]) -> set[str]:
    """The tensors that all ranks have with the same digest."""
    first, *others = each
    return {name for name, digest in first.items() if all(theirs.get(name) == digest for theirs in others)}
