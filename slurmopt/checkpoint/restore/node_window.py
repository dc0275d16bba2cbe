"""Memory that the ranks of a node share while they restore: what all of them need is read once, a share by each."""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import Any

import torch
import torch.distributed as dist
import xxhash

from slurmopt.checkpoint.collectives import LONG_TIMEOUT, together
from slurmopt.checkpoint.format.manifest import Manifest
from slurmopt.checkpoint.format.segments import extents
from slurmopt.checkpoint.restore.fetching import Moved, Wanted, copy_bytes, pieces_of, read_extents
from slurmopt.checkpoint.snapshot.arena import available_memory
from slurmopt.errors import StorageError
from slurmopt.storage.direct_io import ALIGNMENT
from slurmopt.storage.memory import aligned
from slurmopt.storage.store import Store

WINDOW_BYTES = 512 << 20
"""Of a node, in two halves: while one is copied from, the other is filled."""
_LEAST_BYTES = 64 << 20
_TOKEN = 16


class Left(StorageError):
    """Another rank of the node met something; it tells what."""


class Window:
    """One rank's hold on it. All ranks of the node call the same methods together."""

    def __init__(self, ranks: list[int], rank: int) -> None:
        """`ranks` of this node, this one among them; more than one."""
        self.count, self.index = len(ranks), ranks.index(rank)
        self._memory: mmap.mmap | None = None
        self._descriptor: int | None = None
        with together():
            self._group: Any = dist.new_group(
                ranks, backend="gloo", timeout=LONG_TIMEOUT, use_local_synchronization=True
            )
            self._open(ranks[0])
            self.usable = all(self._gather(self._memory is not None))

    def half(self, turn: int) -> memoryview:
        """The memory for the batch `turn`, aligned for direct I/O."""
        assert self._memory is not None
        size = self._half
        start = ALIGNMENT + turn % 2 * size
        return memoryview(self._memory)[start : start + size]

    @property
    def _half(self) -> int:
        assert self._memory is not None
        return (len(self._memory) - ALIGNMENT) // 2 // ALIGNMENT * ALIGNMENT

    @property
    def longest(self) -> int:
        """Bytes of the largest item that it takes."""
        return self._half

    def meet(self, value: Any = None, problem: bool = False) -> list[Any]:
        """Every rank's `value`, once all are here. Left where one of them has met a `problem`."""
        with together():
            told = self._gather((value, problem))
        if not problem and any(each for _, each in told):
            raise Left("another rank of this node could not go on")
        return [each for each, _ in told]

    def leave(self) -> None:
        """This rank cannot go on; the others hear of it."""
        self.meet(problem=True)

    def close(self) -> None:
        if self._group is not None:
            dist.destroy_process_group(self._group)
            self._group = None
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._memory is not None:
            with contextlib.suppress(BufferError):  # a tensor still looks at it: it goes with that tensor
                self._memory.close()
            self._memory = None

    def _gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value, group=self._group)
        return values

    def _open(self, first: int) -> None:
        """The first rank makes it, the others map it by way of /proc. A rank that cannot (another PID namespace, little
        memory) has none, and then nobody uses it."""
        offer: list[Any] = [self._make() if self.index == 0 else None]
        dist.broadcast_object_list(offer, src=first, group=self._group)
        if self.index and offer[0] is not None:
            pid, descriptor, size, token = offer[0]
            with contextlib.suppress(OSError, ValueError):
                opened = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
                try:
                    mapped = mmap.mmap(opened, size)
                finally:
                    os.close(opened)
                if mapped[:_TOKEN] == token:
                    self._memory = mapped

    def _make(self) -> tuple[int, int, int, bytes] | None:
        size = min(WINDOW_BYTES, available_memory() // 4)
        if size < min(_LEAST_BYTES, WINDOW_BYTES):
            return None
        total = ALIGNMENT + aligned(size)
        self._descriptor = os.memfd_create("slurmopt-window", os.MFD_CLOEXEC)
        os.ftruncate(self._descriptor, total)
        self._memory = mmap.mmap(self._descriptor, total)
        token = os.urandom(_TOKEN)
        self._memory[:_TOKEN] = token
        return os.getpid(), self._descriptor, total, token


def read_shared(window: Window, store: Store, manifest: Manifest, wanted: list[Wanted], moved: Moved) -> list[Wanted]:
    """Reads what all ranks of the node want, each rank a share, and copies it to where this rank wants it. Returns what
    is left to this rank alone: items that are too large for the window, or all where the ranks want different things.
    """
    wanted = sorted(wanted, key=_place)
    shared = [each for each in wanted if each.item.bytes <= window.longest]
    names = "\n".join(f"{each.item.name}\0{each.item.offsets}" for each in shared)
    told = window.meet(xxhash.xxh3_128_hexdigest(names.encode()))
    if len(set(told)) > 1:
        return wanted
    last: list[tuple[Wanted, memoryview]] = []
    try:
        for turn, batch in enumerate(_batches(shared, window.longest)):
            placed = _placed(batch, window.half(turn))
            pieces = [piece for each, memory in placed for piece in pieces_of(manifest, each.item, memory)]
            mine = extents(pieces)[(window.index + turn) % window.count :: window.count]
            read_extents(store, mine, moved)
            _copy_all(last)
            last = placed
            window.meet()  # all of this batch is there, and all have copied the one before it
        _copy_all(last)
    except Left:
        raise
    except BaseException:
        window.leave()
        raise
    window.meet()
    return [each for each in wanted if each.item.bytes > window.longest]


def _place(wanted: Wanted) -> tuple[int, int, str]:
    """In the order of storage, so that neighbours are read in one go. Of an item without bytes there is nothing."""
    first = wanted.item.segments[0] if wanted.item.segments else None
    return (first.file, first.offset, wanted.item.name) if first else (-1, 0, wanted.item.name)


def _batches(wanted: list[Wanted], size: int) -> list[list[Wanted]]:
    batches: list[list[Wanted]] = []
    left = 0
    for each in wanted:
        length = aligned(each.item.bytes)
        if length > left:
            batches.append([])
            left = size
        batches[-1].append(each)
        left -= length
    return batches


def _placed(batch: list[Wanted], memory: memoryview) -> list[tuple[Wanted, memoryview]]:
    placed, end = [], 0
    for each in batch:
        placed.append((each, memory[end : end + each.item.bytes]))
        end += aligned(each.item.bytes)
    return placed


def _copy_all(placed: list[tuple[Wanted, memoryview]]) -> None:
    for each, memory in placed:
        if each.into is not None:
            copy_bytes(each.into, memory)
        for copy in each.then:
            copy(torch.frombuffer(memory, dtype=torch.uint8) if len(memory) else torch.empty(0, dtype=torch.uint8))
