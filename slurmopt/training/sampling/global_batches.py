"""The division of an epoch into global batches, and of these into the batches of each rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from slurmopt.errors import JobError
from slurmopt.training.accumulation import Part, rank_parts
from slurmopt.training.sampling.permutation import Permutation

_CHUNK = 4096
"""Indices that are computed at a time: for NumPy a small array costs as much as one of thousands."""


BatchSizes = Callable[[int], int]
"""Maps the samples that were consumed since the run began, of all epochs, to those in the next global batch."""


@dataclass(frozen=True, kw_only=True)
class GlobalBatches:
    """The batches of one rank. `accumulates`: a global batch is divided into several batches per rank."""

    dataset_size: int
    global_batch: int | BatchSizes
    batch_size: int
    rank: int
    world_size: int
    drop_last: bool
    accumulates: bool

    def full_size(self, seen: int) -> int:
        """Samples in the global batch after `seen` samples of all epochs, if the epoch has so many left. JobError where
        a schedule gives no number of samples."""
        if isinstance(self.global_batch, int):
            return self.global_batch
        size = self.global_batch(seen)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise JobError(f"the global batch after {seen:,} samples is {size!r}; valid: a whole number from 1 on")
        return size

    def count(self, consumed: int, before: int) -> int:
        """The number of global batches from the sample `consumed` of the epoch on. `before`: samples of the epochs
        before it."""
        if isinstance(self.global_batch, int):
            left = self.dataset_size - consumed
            return left // self.global_batch if self.drop_last else -(-left // self.global_batch)
        found = 0
        while size := self.next_size(consumed, before):
            consumed, found = consumed + size, found + 1
        return found

    def next_size(self, consumed: int, before: int) -> int:
        """Samples in the next global batch; 0 where there is none.

        It depends on nothing else, so all ranks, and later attempts, compute the same.
        """
        left, full = self.dataset_size - consumed, self.full_size(before + consumed)
        size = min(full, left)
        if self.drop_last:
            return size if size == full else 0
        if not self.accumulates and 0 < left - size < self.world_size <= left - self.world_size:
            return left - self.world_size
        return size

    def parts(self, consumed: int, before: int) -> Iterator[Part]:
        """This rank's batches, from the sample `consumed` of the epoch on."""
        while size := self.next_size(consumed, before):
            if self.accumulates:
                yield from rank_parts(consumed, size, self.rank, self.world_size, self.batch_size)
            else:
                first, last = (size * rank // self.world_size for rank in (self.rank, self.rank + 1))
                yield Part(consumed + first, consumed + last, last - first, size, True)
            consumed += size

    def indices(self, order: Permutation | None, consumed: int, before: int) -> Iterator[list[int]]:
        """The dataset indices of each of `parts`; `order` is the shuffle, if any."""
        for parts in _in_groups(self.parts(consumed, before)):
            places = np.concatenate([np.arange(part.first, part.end, dtype=np.uint64) for part in parts])
            indices = (places if order is None else order(places)).tolist()
            begin = 0
            for part in parts:
                yield indices[begin : begin + part.end - part.first]
                begin += part.end - part.first

    def of_part(self, order: Permutation | None, part: Part) -> list[int]:
        """The dataset indices of the samples of one part that count."""
        places = np.arange(part.first, part.first + part.samples, dtype=np.uint64)
        found: list[int] = (places if order is None else order(places)).tolist()
        return found


def _in_groups(parts: Iterator[Part]) -> Iterator[list[Part]]:
    """Groups successive parts to about `_CHUNK` places; the first is alone, since the training waits for it."""
    group: list[Part] = []
    places = _CHUNK
    for part in parts:
        group.append(part)
        places += part.end - part.first
        if places >= _CHUNK or len(group) >= _CHUNK:
            yield group
            group, places = [], 0
    if group:
        yield group
