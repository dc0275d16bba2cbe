"""Reads items from storage into memory, several ranges in parallel."""

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
"""Threads: while one verifies and copies, others read."""
Progress = Callable[[int], None]
"""Called with the number of bytes of each range that was read."""
Piece = tuple[memoryview, Any, Segment]
"""Memory for a segment's raw bytes, the file that it lies in, and the segment."""


def no_progress(_: int) -> None:
    """The default: ignores the progress."""


@dataclass
class ItemRead:
    """The destination of one saved item: a tensor's memory, or a buffer that is copied from afterwards by `then`."""

    item: Item
    into: memoryview | None = None
    buffer: torch.Tensor | None = None
    then: list[Callable[[torch.Tensor], None]] = field(default_factory=list)


def pieces_of(manifest: Manifest, item: Item, memory: memoryview) -> list[Piece]:
    """An item's segments, each with its part of `memory`."""
    pieces, end = [], 0
    for segment in item.segments:
        pieces.append((memory[end : end + segment.raw], manifest.files[segment.file], segment))
        end += segment.raw
    return pieces


def read_pieces(store: Store, pieces: Iterable[Piece], progress: Progress = no_progress) -> None:
    """Fills each memory with its segment's verified raw bytes, several ranges in parallel."""
    read_extents(store, extents(pieces), progress)


def read_extents(store: Store, ranges: Iterable[Extent[memoryview]], progress: Progress = no_progress) -> None:
    """As `read_pieces`, for given ranges."""
    todo = deque(ranges)
    with ThreadPoolExecutor(max(1, min(_READERS, len(todo))), thread_name_prefix="slurmopt-read") as pool:
        for done in [pool.submit(_read_some, store, todo, progress) for _ in range(_READERS)]:
            done.result()


def _read_some(store: Store, todo: deque[Extent[memoryview]], progress: Progress) -> None:
    """Reads ranges of `todo`, which all readers share, until it is empty. A failure empties it."""
    memory = memoryview(b"")
    try:
        while extent := _next(todo):
            if len(memory) < extent.length:
                memory = staging(extent.length)
            for target, _, raw in read_extent(store, extent, memory):
                copy_bytes(target, raw)
            progress(extent.length)
    except BaseException:
        todo.clear()
        raise


def _next(todo: deque[Extent[memoryview]]) -> Extent[memoryview] | None:
    try:
        return todo.popleft()
    except IndexError:
        return None


def copy_bytes(target: memoryview, raw: memoryview) -> None:
    """Copies without holding the interpreter's lock, as a memoryview assignment would, and without starting threads in
    each reader, as torch's copy would."""
    if raw:
        kind = ctypes.c_char * len(raw)
        ctypes.memmove(kind.from_buffer(target), kind.from_buffer(raw), len(raw))


def bytes_of(tensor: torch.Tensor | None) -> memoryview:
    """The memory of a tensor in host memory."""
    assert tensor is not None
    return memory_of(tensor.detach())
