"""SnapshotPlan: what this rank copies of the state, and where in its arena.

Each rank computes its share from shapes and placements; where these are not sufficient, rank 0 plans for all. A plan is
valid until the structure of the state changes.
"""

from __future__ import annotations

import ctypes
import math
from concurrent.futures import ThreadPoolExecutor

import torch
import xxhash
from torch.distributed.tensor import DTensor

from slurmopt.checkpoint.collectives import Collectives
from slurmopt.checkpoint.format import index
from slurmopt.checkpoint.format.rank_payload import Place
from slurmopt.checkpoint.snapshot.arena import Arena
from slurmopt.checkpoint.snapshot.division import Chunk, Division
from slurmopt.checkpoint.snapshot.planned_division import plan_share
from slurmopt.storage.direct_io import ALIGNMENT
from slurmopt.storage.memory import aligned

_PACKED = 64
_COPIERS = 2
_PIECE_BYTES = 8 << 20


def signature(tensors: dict[str, torch.Tensor]) -> str:
    """A digest that is equal for states with the same plan."""
    parts = []
    for name, tensor in tensors.items():
        spread = str(tensor.placements) if isinstance(tensor, DTensor) else ""
        parts.append(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0{spread}")
    return xxhash.xxh3_64_hexdigest("\n".join(parts).encode())


class SnapshotPlan:
    """The chunks that this rank copies and their places. All ranks create it together."""

    def __init__(self, tensors: dict[str, torch.Tensor], ranks: Collectives, division: Division, alike: bool) -> None:
        """`alike`: all ranks have computed the same division, so no communication is needed."""
        self.signature, self.division = signature(tensors), division
        if alike and division.derivable:
            chunks = division.share(ranks.rank)
        else:
            chunks = plan_share(tensors, ranks, division.first_rank_only)
        self.tensors = shapes(tensors)
        self.own = {name: self.tensors[name] for name in division.own}
        self.describe = alike and division.derivable and division.chunks > index.INLINE_ITEMS
        """Whether the items are too many for the manifest, and are described in the payload files."""
        self.spread = division.spread() if self.describe and ranks.rank == 0 else None
        self._chunks = chunks
        self.places, self.bytes = _laid_out(chunks, tensors)
        self._targets: dict[int, list[torch.Tensor]] = {}

    def copy(self, tensors: dict[str, torch.Tensor], arena: Arena, buffer: int) -> None:
        """Copies this rank's share into one buffer of the arena; returns when the copy is complete."""
        if buffer not in self._targets:
            self._targets[buffer] = self._targets_in(arena, buffer, tensors)
        sources = [_part(tensors[chunk.name].detach(), chunk) for chunk in self._chunks]
        if any(source.is_cuda for source in sources):
            _copy_from_gpu(self._targets[buffer], sources)
        else:
            _copy_in_memory(self._targets[buffer], sources)

    def forget_arena(self) -> None:
        """Drops the tensors that refer to the arena, which is being replaced."""
        self._targets.clear()

    def _targets_in(self, arena: Arena, buffer: int, tensors: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        memory = torch.frombuffer(arena.buffer(buffer), dtype=torch.uint8) if arena.size else torch.empty(0)
        targets = []
        for place in self.places:
            dtype = tensors[place.name].dtype
            raw = memory[place.start : place.start + place.length]
            targets.append(raw.view(dtype).view(place.sizes) if place.length else torch.empty(place.sizes, dtype=dtype))
        return targets


def _copy_in_memory(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copies with threads that synchronize only once. The threads of torch's copy synchronize after each tensor, which
    takes several times as long on a busy machine."""
    pieces: list[tuple[int, int, int]] = []
    for target, source in zip(targets, sources, strict=True):
        if not _is_plain(source):
            target.copy_(source)
            continue
        to, of, length = target.data_ptr(), source.data_ptr(), source.numel() * source.element_size()
        pieces += [(to + at, of + at, min(_PIECE_BYTES, length - at)) for at in range(0, length, _PIECE_BYTES)]
    if len(pieces) == 1:
        ctypes.memmove(*pieces[0])
    elif pieces:
        with ThreadPoolExecutor(_COPIERS, thread_name_prefix="slurmopt-copy") as pool:
            for done in [pool.submit(_move, pieces[first::_COPIERS]) for first in range(_COPIERS)]:
                done.result()


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether its bytes are in host memory in the saved layout, so that its address can be read from."""
    if tensor.device.type != "cpu" or type(tensor) is not torch.Tensor:
        return False
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def _move(pieces: list[tuple[int, int, int]]) -> None:
    for piece in pieces:
        ctypes.memmove(*piece)


def _copy_from_gpu(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copies on a separate stream of each GPU, after the work that the training has queued; the arena is pinned."""
    streams = []
    for device in {source.device for source in sources}:
        stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(device))
            streams.append(stream)
        with torch.cuda.stream(stream):  # None for tensors on the CPU, which are copied synchronously
            for target, source in zip(targets, sources, strict=True):
                if source.device == device:
                    target.copy_(source, non_blocking=stream is not None)
    for stream in streams:
        stream.synchronize()


def _part(tensor: torch.Tensor, chunk: Chunk) -> torch.Tensor:
    """A view of this rank's part of a tensor."""
    if isinstance(tensor, DTensor):
        return tensor.to_local()
    for dimension, (offset, size) in enumerate(zip(chunk.offsets, chunk.sizes, strict=True)):
        if size != tensor.shape[dimension]:
            tensor = tensor.narrow(dimension, offset, size)
    return tensor


def shapes(tensors: dict[str, torch.Tensor]) -> dict[str, tuple[str, list[int]]]:
    """Each tensor's type and shape, in the form of a manifest."""
    return {name: (str(each.dtype).removeprefix("torch."), list(each.shape)) for name, each in tensors.items()}


def _laid_out(chunks: list[Chunk], tensors: dict[str, torch.Tensor]) -> tuple[list[Place], int]:
    """The places of chunks in a buffer, and the bytes that they take."""
    lengths = [tensors[chunk.name].dtype.itemsize * math.prod(chunk.sizes) for chunk in chunks]
    starts, end = item_offsets(lengths)
    return [Place(*chunk, start, length) for chunk, start, length in zip(chunks, starts, lengths, strict=True)], end


def item_offsets(lengths: list[int]) -> tuple[list[int], int]:
    """The offsets of items of these lengths, and their total size: large ones first, at multiples of 4096."""
    starts, end = [0] * len(lengths), 0
    for large in (True, False):
        for at, length in enumerate(lengths):
            if (length >= ALIGNMENT) == large:
                starts[at] = end
                end += aligned(length) if large else -(-length // _PACKED) * _PACKED
    return starts, aligned(end)
