"""Window: memory that the ranks of a node share in a restore, so that each reads a share of what all need."""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import Any

import torch
import torch.distributed as dist
import xxhash

from slurmopt.checkpoint.collectives import LONG_TIMEOUT, collective_call
from slurmopt.checkpoint.format.manifest import Manifest
from slurmopt.checkpoint.format.segments import extents
from slurmopt.checkpoint.restore.fetching import ItemRead, Progress, copy_bytes, pieces_of, read_extents
from slurmopt.checkpoint.snapshot.arena import available_memory
from slurmopt.errors import StorageError
from slurmopt.storage.direct_io import ALIGNMENT
from slurmopt.storage.memory import aligned
from slurmopt.storage.store import Store

WINDOW_BYTES = 512 << 20
"""Bytes per node, in two halves: one is filled while the other is copied from."""
_LEAST_BYTES = 64 << 20
_TOKEN = 16


class PeerFailed(StorageError):
    """Another rank of the node has failed, and reports why."""


class Window:
    """One rank's view of the shared memory. Its methods are collective calls of the node's ranks."""

    def __init__(self, ranks: list[int], rank: int) -> None:
        """`ranks`: at least two ranks of this node, including `rank`."""
        self.count, self.index = len(ranks), ranks.index(rank)
        self._memory: mmap.mmap | None = None
        self._descriptor: int | None = None
        with collective_call():
            self._group: Any = dist.new_group(
                ranks, backend="gloo", timeout=LONG_TIMEOUT, use_local_synchronization=True
            )
            self._open(ranks[0])
            self.usable = all(self._gather(self._memory is not None))

    def batch_memory(self, turn: int) -> memoryview:
        """The memory for the batch `turn`, aligned for direct I/O."""
        assert self._memory is not None
        size = self._half_bytes
        start = ALIGNMENT + turn % 2 * size
        return memoryview(self._memory)[start : start + size]

    @property
    def _half_bytes(self) -> int:
        assert self._memory is not None
        return (len(self._memory) - ALIGNMENT) // 2 // ALIGNMENT * ALIGNMENT

    @property
    def longest(self) -> int:
        """Bytes of the largest item that fits."""
        return self._half_bytes

    def synchronize(self, value: Any = None, problem: bool = False) -> list[Any]:
        """Waits for all ranks and returns their `value`s. PeerFailed where another rank has a `problem`."""
        with collective_call():
            answers = self._gather((value, problem))
        if not problem and any(each for _, each in answers):
            raise PeerFailed("another rank of this node could not go on")
        return [each for each, _ in answers]

    def report_failure(self) -> None:
        """Tells the other ranks that this one cannot continue."""
        self.synchronize(problem=True)

    def close(self) -> None:
        if self._group is not None:
            dist.destroy_process_group(self._group)
            self._group = None
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._memory is not None:
            with contextlib.suppress(BufferError):  # a tensor still refers to it, and releases it
                self._memory.close()
            self._memory = None

    def _gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value, group=self._group)
        return values

    def _open(self, first: int) -> None:
        """The first rank creates the memory, the others map it through /proc. Where one cannot (another PID namespace,
        little memory), none uses it."""
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


def read_shared(
    window: Window, store: Store, manifest: Manifest, wanted: list[ItemRead], progress: Progress
) -> list[ItemRead]:
    """Reads items that all ranks of the node need, each rank a share, and copies them to this rank's destinations.

    Returns the items that this rank must read alone: those too large for the window, or all where the ranks need
    different items.
    """
    wanted = sorted(wanted, key=_place)
    shared = [each for each in wanted if each.item.bytes <= window.longest]
    names = "\n".join(f"{each.item.name}\0{each.item.offsets}" for each in shared)
    answers = window.synchronize(xxhash.xxh3_128_hexdigest(names.encode()))
    if len(set(answers)) > 1:
        return wanted
    last: list[tuple[ItemRead, memoryview]] = []
    try:
        for turn, batch in enumerate(_batches(shared, window.longest)):
            placed = _placed(batch, window.batch_memory(turn))
            pieces = [piece for each, memory in placed for piece in pieces_of(manifest, each.item, memory)]
            own_ranges = extents(pieces)[(window.index + turn) % window.count :: window.count]
            read_extents(store, own_ranges, progress)
            _copy_all(last)
            last = placed
            window.synchronize()  # this batch is complete, and all ranks have copied the previous one
        _copy_all(last)
    except PeerFailed:
        raise
    except BaseException:
        window.report_failure()
        raise
    window.synchronize()
    return [each for each in wanted if each.item.bytes > window.longest]


def _place(wanted: ItemRead) -> tuple[int, int, str]:
    """Sorts by position in storage, so that adjacent items are read together. An item may have no segments."""
    first = wanted.item.segments[0] if wanted.item.segments else None
    return (first.file, first.offset, wanted.item.name) if first else (-1, 0, wanted.item.name)


def _batches(wanted: list[ItemRead], size: int) -> list[list[ItemRead]]:
    batches: list[list[ItemRead]] = []
    left = 0
    for each in wanted:
        length = aligned(each.item.bytes)
        if length > left:
            batches.append([])
            left = size
        batches[-1].append(each)
        left -= length
    return batches


def _placed(batch: list[ItemRead], memory: memoryview) -> list[tuple[ItemRead, memoryview]]:
    placed, end = [], 0
    for each in batch:
        placed.append((each, memory[end : end + each.item.bytes]))
        end += aligned(each.item.bytes)
    return placed


def _copy_all(placed: list[tuple[ItemRead, memoryview]]) -> None:
    for each, memory in placed:
        if each.into is not None:
            copy_bytes(each.into, memory)
        for copy in each.then:
            copy(torch.frombuffer(memory, dtype=torch.uint8) if len(memory) else torch.empty(0, dtype=torch.uint8))
