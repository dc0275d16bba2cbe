"""An entry of the state taken apart, and whose it is: rank 0's for all ranks, or each rank's own.

Each rank keeps its own where the entry asks for it (`per_rank = True`), and where the ranks' values turn out to differ:
a data loader's position, a counter. `per_rank = False` means that rank 0's is everybody's, whatever the others have.
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
    """Takes entries apart for one rank, and remembers which differ: those stay each rank's own, so plans stay too."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._alike: dict[str, set[str]] = {}  # of each entry that differs, the tensors that have been the same so far
        self._digests: dict[str, dict[str, int]] = {}

    def take_apart(self, name: str, value: Any, tensors: dict[str, torch.Tensor]) -> Entry:
        """The entry; its tensors go into `tensors`."""
        refuse_parts(name, value)
        own = per_rank_name(name, self._rank)
        if keeps_own(value):
            return Entry(own, encode(take_apart(own, state_of(value), tensors), own), None, True)
        mine: dict[str, torch.Tensor] = {}
        skeleton = take_apart(name, state_of(value), ChainMap(mine, tensors))
        compared = {} if isinstance(unwrapped(value), (torch.nn.Module, torch.optim.Optimizer)) else _plain(mine)
        if name in self._alike:
            names = {each: own + each.removeprefix(name) for each in compared.keys() - self._alike[name]}
            tensors.update({names.get(each, each): tensor for each, tensor in mine.items()})
            common = {each: tensor for each, tensor in compared.items() if each not in names}
            return Entry(own, encode(renamed(skeleton, names), own), common, True)
        tensors.update(mine)
        return Entry(name, encode(skeleton, name), compared if may_differ(value) else None, False)

    def digests(self, entries: dict[str, Entry]) -> dict[str, int]:
        """A digest of each entry that may differ between the ranks, of what would be saved once for all of them."""
        found = {name: entry for name, entry in entries.items() if entry.compared is not None}
        self._digests = {name: _digests(entry.compared or {}) for name, entry in found.items()}
        return {name: _digest(b"" if found[name].is_own else found[name].object, self._digests[name]) for name in found}

    def compare(self, told: list[dict[str, int]], gather: Callable[[Any], list[Any]]) -> tuple[bool, list[str]]:
        """Whether digests are not the same on all ranks, and the entries that were the same before.

        Those are each rank's own from now on, but for the tensors that all ranks have alike. A tensor that has differed
        once, or is new in such an entry, is never taken for alike again. All ranks together, with the same outcome.
        """
        names = {name for digests in told for name in digests}
        found = sorted(name for name in names if len({digests.get(name) for digests in told}) > 1)
        if not found:
            return False, []
        before = set(self._alike)
        each = gather({name: self._digests.get(name, {}) for name in found})
        for name in found:
            alike = _in_all([theirs[name] for theirs in each])
            self._alike[name] = alike & self._alike.get(name, alike)
        return True, [name for name in found if name not in before]

    def alike(self, state: dict[str, Any], tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The tensors that all ranks must have in the same shape, by names that are the same on all of them. Only
        objects may have others on each rank: what is plain would not fit when it is restored."""
        own, plain = [], {}
        for name, value in state.items():
            if keeps_own(value) or (name in self._alike and hasattr(value, "state_dict")):
                own.append(per_rank_name(name, self._rank))
            elif name in self._alike:
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


def shared_name(entry: str, name: str) -> str:
    """The name of an entry's tensor where all ranks have it in common."""
    return re.sub(rf"^{re.escape(entry)}/rank-\d{{5,}}(?=[.#]|$)", lambda _: entry, name)


def _plain(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What lies in host memory. The parameters of models and optimizers are DDP's to keep alike, and a GPU's memory
    would have to be copied; the rest takes about half as long to hash as to copy."""
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
    """The tensors that all ranks have, with the same digest."""
    first, *others = each
    return {name for name, digest in first.items() if all(theirs.get(name) == digest for theirs in others)}
