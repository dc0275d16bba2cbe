"""Bytes from storage into memory: what goes where, and several ranges at a time."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch

from slurmopt.checkpoint.format.manifest import Item, Manifest, Segment
from slurmopt.checkpoint.format.segments import Extent, extents, read_extent
from slurmopt.checkpoint.format.tensor_bytes import memory_of
from slurmopt.storage.memory import staging
from slurmopt.storage.store import Store

_READERS = 4
"""While one verifies and copies, others read."""
Moved = Callable[[int], None]
"""Told of each range that was read, with its bytes."""
Piece = tuple[memoryview, Any, Segment]
"""Memory for a segment's raw bytes, the file that it lies in, and the segment."""


def nobody(_: int) -> None:
    """Where nobody asks how far it is."""


@dataclass
class Wanted:
    """Where one saved item goes: into a tensor byte by byte, or into a buffer that is cut up afterwards."""

    item: Item
    into: memoryview | None = None
    buffer: torch.Tensor | None = None
    then: list[Callable[[torch.Tensor], None]] = field(default_factory=list)


def pieces_of(manifest: Manifest, item: Item, memory: memoryview) -> list[Piece]:
    """An item's segments, each with its place in `memory`."""
    pieces, end = [], 0
    for segment in item.segments:
        pieces.append((memory[end : end + segment.raw], manifest.files[segment.file], segment))
        end += segment.raw
    return pieces


def read_pieces(store: Store, pieces: Iterable[Piece], moved: Moved = nobody) -> None:
    """Fills each memory with its segment's raw bytes, verified; several ranges at a time."""
    read_extents(store, extents(pieces), moved)


def read_extents(store: Store, ranges: Iterable[Extent[memoryview]], moved: Moved = nobody) -> None:
    """The same, of ranges that are cut already."""
    todo = deque(ranges)
    with ThreadPoolExecutor(max(1, min(_READERS, len(todo))), thread_name_prefix="slurmopt-read") as pool:
        for done in [pool.submit(_read_some, store, todo, moved) for _ in range(_READERS)]:
            done.result()


def _read_some(store: Store, todo: deque[Extent[memoryview]], moved: Moved) -> None:
    """Takes from `todo` what no other reader has taken, to the end. Where one fails the others need not go on."""
    memory = memoryview(b"")
    try:
        while extent := _next(todo):
            if len(memory) < extent.length:
                memory = staging(extent.length)
            for target, _, raw in read_extent(store, extent, memory):
                copy_bytes(target, raw)
            moved(extent.length)
    except BaseException:
        todo.clear()
        raise


def _next(todo: deque[Extent[memoryview]]) -> Extent[memoryview] | None:
    try:
        return todo.popleft()
    except IndexError:
        return None


def copy_bytes(target: memoryview, raw: memoryview) -> None:
    """A memoryview's assignment would hold the interpreter's lock, and torch's copy start threads of its own in each
    reader."""
    if raw:
        kind = ctypes.c_char * len(raw)
        ctypes.memmove(kind.from_buffer(target), kind.from_buffer(raw), len(raw))


def bytes_of(tensor: torch.Tensor | None) -> memoryview:
    """The memory of a tensor in host memory."""
    assert tensor is not None
    return memory_of(tensor.detach())
