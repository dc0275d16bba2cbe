"""The state's copy in host memory: which rank copies what, and where in its arena it lies.

torch.distributed.checkpoint's planner divides the work: what all ranks have is written once, by the rank that has least
to write so far, and what is sharded is written by its owner. The plan is made when the state's structure changes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch
import xxhash
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType
from torch.distributed.tensor import DTensor

from slurmopt.checkpoint.agreement import Agreement
from slurmopt.checkpoint.arena import Arena, aligned
from slurmopt.checkpoint.part import Place
from slurmopt.storage.folder import ALIGNMENT

SHARE_BYTES = 16 << 20
"""Replicated tensors are divided among the ranks in parts of about this size."""
_PACKED = 64
_COPIERS = 2
_PIECE_BYTES = 8 << 20


class StatePlanner(DefaultSavePlanner):
    """DCP's planner on names that are flat already; it also divides large replicated tensors among the ranks.

    Those in `of_first` are rank 0's to write, as the ranks' values may differ.
    """

    def __init__(self, divide: bool, of_first: Collection[str] = ()) -> None:
        super().__init__(flatten_state_dict=False)
        self._divide, self._of_first = divide, of_first

    def create_local_plan(self) -> SavePlan:
        plan = super().create_local_plan()
        if not self.is_coordinator:
            plan = replace(plan, items=[item for item in plan.items if not self._is_of_first(item)])
        if self._divide:
            plan = replace(plan, items=[part for item in plan.items for part in _divided(item)])
        self.plan = plan
        return plan

    def _is_of_first(self, item: WriteItem) -> bool:
        return item.type == WriteItemType.TENSOR and item.index.fqn in self._of_first


def _divided(item: WriteItem) -> list[WriteItem]:
    """A whole tensor as rows of about 16 MiB, which the planner then spreads."""
    data = item.tensor_data
    if item.type != WriteItemType.TENSOR or data is None or not data.size or not data.size.numel():
        return [item]
    row = data.properties.dtype.itemsize * (data.size.numel() // data.size[0])
    rows = max(1, SHARE_BYTES // max(1, row))
    if rows >= data.size[0]:
        return [item]
    parts = []
    for start in range(0, data.size[0], rows):
        offsets = torch.Size([start] + [0] * (len(data.size) - 1))
        sizes = torch.Size([min(rows, data.size[0] - start), *data.size[1:]])
        chunk = replace(data, chunk=ChunkStorageMetadata(offsets, sizes))
        index = MetadataIndex(item.index.fqn, offsets)
        parts.append(replace(item, index=index, type=WriteItemType.SHARD, tensor_data=chunk))
    return parts


def signature(tensors: dict[str, torch.Tensor]) -> str:
    """Equal for two states that the same plan fits."""
    parts = []
    for name, tensor in tensors.items():
        spread = str(tensor.placements) if isinstance(tensor, DTensor) else ""
        parts.append(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0{spread}")
    return xxhash.xxh3_64_hexdigest("\n".join(parts).encode())


class SnapshotPlan:
    """What this rank copies, and where to; made by all ranks together."""

    def __init__(self, tensors: dict[str, torch.Tensor], agreement: Agreement, of_first: Collection[str] = ()) -> None:
        planner = StatePlanner(divide=agreement.world_size > 1, of_first=of_first)
        planner.set_up_planner(tensors, is_coordinator=agreement.rank == 0)
        plans = agreement.gather(planner.create_local_plan())
        # Every rank computes the same global plan: cheaper than to send each its own.
        final, metadata = planner.create_global_plan(plans)
        self.signature = signature(tensors)
        self.tensors = _shapes(metadata)
        self._items = [(item.index, item.tensor_data.chunk) for item in final[agreement.rank].items if item.tensor_data]
        self.places, self.bytes = _laid_out(self._items, tensors)
        self._targets: dict[int, list[torch.Tensor]] = {}

    def copy(self, tensors: dict[str, torch.Tensor], arena: Arena, buffer: int) -> None:
        """Copies this rank's share into one buffer of the arena; returns when the copy is complete."""
        if buffer not in self._targets:
            self._targets[buffer] = self._targets_in(arena, buffer, tensors)
        sources = [_part(tensors[index.fqn].detach(), chunk) for index, chunk in self._items]
        if any(source.is_cuda for source in sources):
            _copy_from_gpu(self._targets[buffer], sources)
        else:
            _copy_in_memory(self._targets[buffer], sources)

    def forget_arena(self) -> None:
        """The arena was replaced: no tensor may look at the old one any more."""
        self._targets.clear()

    def _targets_in(self, arena: Arena, buffer: int, tensors: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        memory = torch.frombuffer(arena.buffer(buffer), dtype=torch.uint8) if arena.size else torch.empty(0)
        found = []
        for place, (index, _) in zip(self.places, self._items, strict=True):
            dtype = tensors[index.fqn].dtype
            raw = memory[place.start : place.start + place.length]
            found.append(raw.view(dtype).view(place.sizes) if place.length else torch.empty(place.sizes, dtype=dtype))
        return found


def _copy_in_memory(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """By threads that wait for nobody but at the end. torch's copy has all its threads meet at the end of each tensor,
    which on a busy machine takes several times as long."""
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
    """Whether its bytes lie in host memory as they are saved; the address of any other device's is nothing to read."""
    if tensor.device.type != "cpu" or type(tensor) is not torch.Tensor:
        return False
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def _move(pieces: list[tuple[int, int, int]]) -> None:
    for piece in pieces:
        ctypes.memmove(*piece)


def _copy_from_gpu(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """On a stream of its own for each GPU, after what the training has queued there so far; the arena is pinned."""
    streams = []
    for device in {source.device for source in sources}:
        stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(device))
            streams.append(stream)
        with torch.cuda.stream(stream):  # none for tensors of the CPU, which are copied at once
            for target, source in zip(targets, sources, strict=True):
                if source.device == device:
                    target.copy_(source, non_blocking=stream is not None)
    for stream in streams:
        stream.synchronize()


def _part(tensor: torch.Tensor, chunk: ChunkStorageMetadata) -> torch.Tensor:
    """This rank's part of a tensor, as a view."""
    if isinstance(tensor, DTensor):
        return tensor.to_local()
    for dimension, (offset, size) in enumerate(zip(chunk.offsets, chunk.sizes, strict=True)):
        if size != tensor.shape[dimension]:
            tensor = tensor.narrow(dimension, offset, size)
    return tensor


def _shapes(metadata: Metadata) -> dict[str, tuple[str, list[int]]]:
    return {
        name: (str(each.properties.dtype).removeprefix("torch."), list(each.size))
        for name, each in metadata.state_dict_metadata.items()
    }


def _laid_out(items: list[Any], tensors: dict[str, torch.Tensor]) -> tuple[list[Place], int]:
    """The tensors' places in a buffer, and how much of it they take."""
    lengths = [tensors[index.fqn].dtype.itemsize * chunk.sizes.numel() for index, chunk in items]
    starts, end = starts_of(lengths)
    places = [
        Place(index.fqn, tuple(chunk.offsets), tuple(chunk.sizes), start, length)
        for (index, chunk), start, length in zip(items, starts, lengths, strict=True)
    ]
    return places, end


def starts_of(lengths: list[int]) -> tuple[list[int], int]:
    """Where items of these lengths start, and where they end: large ones first, at multiples of 4096."""
    starts, end = [0] * len(lengths), 0
    for large in (True, False):
        for at, length in enumerate(lengths):
            if (length >= ALIGNMENT) == large:
                starts[at] = end
                end += aligned(length) if large else -(-length // _PACKED) * _PACKED
    return starts, aligned(end)
